package httpfence_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/fencetest"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
)

// 16 clients, most of which have a stale token at any time. The handler records what
// landed.
func TestNoStaleRequestLandsAmongManyClients(t *testing.T) {
	var inside atomic.Int32
	var landed []holdfast.Token // written only within the effect
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if inside.Add(1) != 1 {
			t.Error("two effects at once")
		}
		c, _ := fencing.ClaimFromContext(r.Context())
		landed = append(landed, c.Token)
		inside.Add(-1)
	})
	s := serve(t, httpfence.Handler(h, memfence.New(memfence.Options{}), byPath,
		httpfence.Options{Auditor: &journal{}}), 1)
	ok := fencetest.Race(t, 30, func(_ int, token int64) error {
		resp, _, err := s.put(t, token, strings.NewReader("x"))
		if err == nil && resp.StatusCode != 200 {
			err = fmt.Errorf("answered %v", resp)
		}
		return err
	})
	for i := range landed {
		if i > 0 && landed[i] < landed[i-1] {
			t.Fatalf("%v landed after %v", landed[i], landed[i-1])
		}
	}
	if len(landed) != ok {
		t.Errorf("%d landed, %d got 200", len(landed), ok)
	}
}

func TestHandlerIsAGuard(t *testing.T) {
	var stored, betweens sync.Map
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if between, ok := betweens.Load(string(data)); ok && err == nil {
			err = between.(func() error)()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		stored.Store(r.URL.Path, string(data))
	})
	byName := func(r *http.Request) (resource, name string, err error) { return r.URL.Path, fencetest.Name, nil }
	s := serve(t, httpfence.Handler(h, memfence.New(memfence.Options{}), byName,
		httpfence.Options{Auditor: &journal{}}), 1)
	base := s.client.Transport.(*httpfence.Transport)
	lossy := &loseReply{RoundTripper: base.Base}
	base.Base = lossy
	fencetest.Test(t, fencetest.Guard{
		Write: func(ctx context.Context, resource string, c fencing.Claim, data string, between func() error) error {
			betweens.Store(data, between)
			ctx = fencing.NewContext(ctx, &holder{name: c.Name, token: c.Token})
			at := s.srv.URL + "/" + url.PathEscape(resource)
			req, err := http.NewRequestWithContext(ctx, http.MethodPut, at, strings.NewReader(data))
			if err != nil {
				return err
			}
			resp, err := s.client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			err = httpfence.CheckResponse(resp)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("answered %s", resp.Status)
			}
			return err
		},
		Read: func(_ context.Context, resource string) (string, error) {
			data, _ := stored.LoadOrStore("/"+resource, "")
			return data.(string), nil
		},
		LoseReply: func() { lossy.next.Store(true) },
	})
}

// loseReply loses a reply.
type loseReply struct {
	http.RoundTripper
	next atomic.Bool
}

func (l *loseReply) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err != nil || !l.next.CompareAndSwap(true, false) {
		return resp, err
	}
	resp.Body.Close()
	return nil, io.ErrUnexpectedEOF
}
