package queue

import (
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// notesOf are the entries that a call has say since when they are held.
func notesOf(c etcdfake.Call) (n int) {
	r, ok := c.Request.(*pb.TxnRequest)
	if !ok {
		return 0
	}
	for _, op := range r.Success {
		if inner := op.GetRequestTxn(); inner != nil && len(inner.Success) == 1 && inner.Success[0].GetRequestPut().GetIgnoreLease() {
			n++
		}
	}
	return n
}

// Locks that last say since when, a few at a time, and each once. Short ones
// cost no write.
func TestLocksThatLastSaySinceWhenOnceAndAFewAtATime(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var notes []int // by the link only, which calls under its lock
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if n := notesOf(c); n > 0 {
				notes = append(notes, n)
			}
			return etcdfake.Fate{}
		})
		const many = 40
		held := time.Now()
		var locks []*Hold
		for i := range many {
			h, err := p.queue(fmt.Sprint("long", i)).Acquire(t.Context(), Request{Mode: "exclusive"})
			if err != nil {
				t.Fatal(err)
			}
			locks = append(locks, h)
		}
		for range 5 {
			h, err := p.queue("short").Acquire(t.Context(), Request{Mode: "exclusive"})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(900 * time.Millisecond)
			if err := h.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		p.Link.Plan(nil)
		total := 0
		for _, n := range notes {
			if total += n; n > 16 {
				t.Errorf("%d at once", n)
			}
		}
		if total != many || len(notes) > 4 {
			t.Errorf("noted %v", notes)
		}
		for _, h := range locks {
			kv := kit.Standing(srv, h.Queue().Name())[0]
			v, ok := DecodeValue(kv.Value)
			if !ok || kv.Version != 2 || v.Held.Sub(held) < -time.Millisecond || v.Held.Sub(held) > time.Second || v.Mode != "exclusive" {
				t.Fatalf("entry %v", kv)
			}
			if err := h.Check(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Etcd's own locks have empty values and do not look at ours, so ours say at
// their prefixes what they say elsewhere.
func TestLockAtAForeignPrefixSaysWhoHoldsIt(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		if _, err := p.queueAt("/legacy/x").Acquire(t.Context(), Request{Owner: "me"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if v, ok := DecodeValue(srv.Keys("/legacy/x/")[0].Value); !ok || v.Owner != "me" || v.Held.IsZero() {
			t.Errorf("%v, %v", v, ok)
		}
	})
}
