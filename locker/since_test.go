package locker_test

import (
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/locker"
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
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		var notes []int // by the link only, which calls under its lock
		p.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if n := notesOf(c); n > 0 {
				notes = append(notes, n)
			}
			return etcdfake.Fate{}
		})
		const many = 40
		held := time.Now()
		var locks []*locker.Lock
		for i := range many {
			lk, err := locker.NewMutex(p.sess, fmt.Sprint("long", i)).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			locks = append(locks, lk)
		}
		for range 5 {
			lk, err := locker.NewMutex(p.sess, "short").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(900 * time.Millisecond)
			if err := lk.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		p.link.Plan(nil)
		total := 0
		for _, n := range notes {
			if total += n; n > 16 {
				t.Errorf("%d at once", n)
			}
		}
		if total != many || len(notes) > 4 {
			t.Errorf("noted %v", notes)
		}
		for _, lk := range locks {
			kv := standing(srv, lk.Name())[0]
			v, ok := queue.DecodeValue(kv.Value)
			if !ok || kv.Version != 2 || v.Held.Sub(held) < -time.Millisecond || v.Held.Sub(held) > time.Second || v.Mode != "exclusive" {
				t.Fatalf("entry %v", kv)
			}
			if err := lk.Check(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Etcd's own locks have empty values and do not look at ours, so ours say at
// their prefixes what they say elsewhere.
func TestLockAtAForeignPrefixSaysWhoHoldsIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		if _, err := locker.NewMutexAt(p.sess, "/legacy/x").With(locker.Options{Owner: "me"}).Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if v, ok := queue.DecodeValue(srv.Keys("/legacy/x/")[0].Value); !ok || v.Owner != "me" || v.Held.IsZero() {
			t.Errorf("%v, %v", v, ok)
		}
	})
}
