package watching

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
)

// A watch that stands, or that was not created, keeps its stream busy no longer. Only where etcd answers, and does not
// create it, is that the stream's fault.
func TestArmedWatchLeavesItsStreamToTheNextOne(t *testing.T) {
	errLook := errors.New("etcd does not answer")
	for name, c := range map[string]struct {
		slow    bool
		look    func(context.Context) error
		want    error
		another bool // each watch is on another stream
	}{
		"created":                            {},
		"not created, and etcd is silent":    {true, func(context.Context) error { return errLook }, errLook, false},
		"not created although etcd answers":  {true, func(context.Context) error { return nil }, ErrUnarmed, true},
		"not created, and nothing is looked": {true, nil, errNotCreated, false},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				link := srv.Link()
				defer link.Close()
				if c.slow {
					link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{Request: time.Hour} })
				}
				var s Streams
				used := make(map[*Stream]bool)
				for range 2 * armingPerStream {
					st, bound := s.Pick()
					if used[st] = true; bound != armWait {
						t.Errorf("stream %d is busy: %v", st.number, bound)
					}
					w, err := st.Arm(t.Context(), Request{
						Client: link.Client(), Open: t.Context(), Key: "x", Within: time.Second, Look: c.look,
					})
					if (err == nil) != (c.want == nil) || c.want != errNotCreated && !errors.Is(err, c.want) {
						t.Errorf("error %v, want %v", err, c.want)
					}
					if w != nil {
						defer w.Close()
					}
				}
				if (len(used) > 1) != c.another {
					t.Errorf("%d streams were used", len(used))
				}
			})
		})
	}
}

// A busy etcd creates the watch late, and answers a read later still. A second watch would only add to its load.
func TestWatchIsGivenUpOnlyIfALookIsAnsweredFirst(t *testing.T) {
	const within, creation = time.Second, 3 * time.Second
	for name, c := range map[string]struct {
		look, took time.Duration
		want       error
	}{
		"the watch comes first": {look: 3 * time.Second, took: creation},
		"the look comes first":  {look: time.Second, took: within + time.Second, want: ErrUnarmed},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				link := srv.Link()
				defer link.Close()
				link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{Request: creation} })
				var s Streams
				st, _ := s.Pick()
				looks, began := 0, time.Now()
				w, err := st.Arm(t.Context(), Request{
					Client: link.Client(), Open: t.Context(), Key: "x", Within: within,
					Look: func(ctx context.Context) error {
						looks++
						select {
						case <-time.After(c.look):
							return nil
						case <-ctx.Done():
							return ctx.Err()
						}
					},
				})
				if took := time.Since(began); !errors.Is(err, c.want) || took != c.took || looks != 1 {
					t.Errorf("after %v and %d looks: %v; want %v after %v and one look", took, looks, err, c.want, c.took)
				}
				if w != nil {
					w.Close()
				}
			})
		})
	}
}

// errNotCreated stands for whatever etcd's client says of a watch that it has not created.
var errNotCreated = errors.New("not created")
