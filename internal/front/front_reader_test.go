package front

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func TestMain(m *testing.M) { leak.Main(m) }

// reader is a reader of the front of lock x that ends with the session.
func reader(t *testing.T, p *kit.Process) *Monitor {
	t.Helper()
	return Of(p.Host.Env, layout.Named("holdfast", holdfast.KindLock, "x"))
}

// bareReader is a reader without a session.
func bareReader(t *testing.T, cli *clientv3.Client, lock string) *Monitor {
	t.Helper()
	return readerOf(t, cli, layout.Named(names.DefaultNamespace, holdfast.KindLock, lock))
}

func TestFrontsAreTheSameIfTheyHaveTheSameEntryAndValue(t *testing.T) {
	t.Parallel()
	kv := func(key string, create, mod int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), CreateRevision: create, ModRevision: mod}
	}
	for _, c := range []struct {
		a, b *mvccpb.KeyValue
		want bool
	}{
		{nil, nil, true},
		{kv("a", 1, 1), nil, false},
		{nil, kv("a", 1, 1), false},
		{kv("a", 1, 1), kv("a", 1, 1), true},
		{kv("a", 1, 1), kv("b", 1, 1), false},
		{kv("a", 1, 3), kv("a", 2, 3), false},
		{kv("a", 1, 1), kv("a", 1, 2), false}, // another value
	} {
		if got := (Front{Entry: c.a}).same(Front{Entry: c.b}); got != c.want {
			t.Errorf("%v and %v are the same: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func mustAcquire(t *testing.T, p *kit.Process, data string) *hold.Hold {
	t.Helper()
	h, err := hold.Acquire(kit.Within(t, time.Minute), queue.New(p.Host, holdfast.KindLock, "x"),
		hold.Request{Request: queue.Request{Data: data}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestReadSeesTheHolderWithItsToken(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		r := reader(t, p)
		if f, err := r.Read(t.Context()); err != nil || f.Entry != nil || f.Revision == 0 {
			t.Errorf("an empty queue: %+v, %v", f, err)
		}
		srv.Put("holdfast/epoch", "3")
		h := mustAcquire(t, p, "data")
		f, err := r.Read(t.Context())
		if err != nil || f.Token != h.Token() || f.Value.Data != "data" {
			t.Errorf("%+v, %v; want token %v", f, err, h.Token())
		}
		if want, err := holdfast.NewToken(3, f.Entry.CreateRevision); f.Token != want || err != nil {
			t.Errorf("token %v, want %v", f.Token, want)
		}
	})
}

func TestReaderEndsWithItsContextItsSessionAndItsClient(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		bare, p := bareReader(t, cli, "x"), kit.Start(t, srv)
		withSession := reader(t, p)
		calls := map[string]func(context.Context, *Monitor) error{
			"Read": func(ctx context.Context, r *Monitor) error { _, err := r.Read(ctx); return err },
			"Follow": func(ctx context.Context, r *Monitor) error {
				return r.Follow(ctx, time.Minute, func(Front) {})
			},
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for name, call := range calls {
			if err := call(canceled, bare); err == nil || !errors.Is(err, context.Canceled) {
				t.Errorf("%s of a canceled context = %v", name, err)
			}
		}

		// A Follow that runs ends, too, and so does a Read that is not answered.
		running := func(ctx context.Context, r *Monitor, l *etcdfake.Link, end func()) {
			t.Helper()
			done := make(chan error, len(calls))
			go func() { done <- calls["Follow"](ctx, r) }()
			time.Sleep(time.Second)
			l.BlackHole()
			go func() { done <- calls["Read"](ctx, r) }()
			time.Sleep(kit.Prompt)
			began := time.Now()
			end()
			for range calls {
				err := <-done
				if took := time.Since(began); err == nil || took > kit.Prompt {
					t.Errorf("ended with %v after %v", err, took)
				}
				if ctx.Err() == nil && !errors.Is(err, holdfast.ErrClosed) && !errors.Is(err, holdfast.ErrClientClosed) {
					t.Errorf("ended with %v", err)
				}
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		running(ctx, withSession, p.Link, stop)
		p.Heal()
		running(t.Context(), withSession, p.Link, func() {
			p.Heal()
			if err := p.Sess.Close(kit.Within(t, time.Minute)); err != nil {
				t.Error(err)
			}
		})
		running(t.Context(), bare, link, func() { _ = cli.Close() })
		for name, call := range calls {
			if err := call(t.Context(), withSession); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("%s after Close of the session = %v", name, err)
			}
			if err := call(t.Context(), bare); !errors.Is(err, holdfast.ErrClientClosed) {
				t.Errorf("%s after Close of the client = %v", name, err)
			}
			if err := call(canceled, withSession); !errors.Is(err, context.Canceled) {
				t.Errorf("%s of a canceled context after Close of the session = %v", name, err)
			}
		}
	})
}

// A session and a client live for long.
func TestReaderLeavesNothingThatListensToTheEndOfTheSessionOrOfItsCaller(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		r := reader(t, kit.Start(t, srv))
		open, caller := &kit.Listened{Context: r.env.Context}, &kit.Listened{Context: t.Context()}
		env := *r.env
		env.Context = open
		r.env = &env
		if _, err := r.Read(caller); err != nil {
			t.Fatal(err)
		}
		open.NothingListens(t, "Read")
		caller.NothingListens(t, "Read")

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Follow(ctx, time.Minute, func(Front) {}) }()
		time.Sleep(time.Hour)
		if n := open.Now.Load(); n > 3 {
			t.Errorf("Follow has %d that listen after an hour", n)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		open.NothingListens(t, "Follow")
	})
}

func TestValuesThatAreNotOursAreTheDataOfACandidate(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		r := bareReader(t, srv.Client(t), "x")
		for i, value := range []string{"", "plain", `{"owner":`} {
			if got := r.valueOf(&mvccpb.KeyValue{Value: []byte(value)}); got != (layout.Value{Data: value}) {
				t.Errorf("%d: %q is read as %+v", i, value, got)
			}
		}
	})
}
