package hold_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// heldIn returns the number of entries that a call has say since when they are held.
func heldIn(c etcdfake.Call) (n int) {
	r, ok := c.Request.(*pb.TxnRequest)
	if !ok {
		return 0
	}
	for _, op := range r.Success {
		if inner := op.GetRequestTxn(); inner != nil && len(inner.Success) == 1 &&
			inner.Success[0].GetRequestPut().GetIgnoreLease() {
			n++
		}
	}
	return n
}

// Holds that last say since when they are held, once each and a few in one request. Short
// holds cost no write.
func TestLongHoldsSaySinceWhenOnceInBatches(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		var sizes []int // written by the link only, which calls under a mutex of its own
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if n := heldIn(c); n > 0 {
				sizes = append(sizes, n)
			}
			return etcdfake.Fate{}
		})
		const many = 40
		held := time.Now()
		var locks []*hold.Hold
		for i := range many {
			h, err := hold.Acquire(t.Context(), p.Queue(fmt.Sprint("long", i)), hold.Request{})
			if err != nil {
				t.Fatal(err)
			}
			locks = append(locks, h)
		}
		for range 5 {
			h, err := hold.Acquire(t.Context(), p.Queue("short"), hold.Request{})
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
		for _, n := range sizes {
			if total += n; n > hold.MaxHeld {
				t.Errorf("%d entries in one request", n)
			}
		}
		if total != many || len(sizes) > many/hold.MaxHeld+1 {
			t.Errorf("requests of sizes %v", sizes)
		}
		for _, h := range locks {
			kv := kit.Standing(srv, h.Queue().Name())[0]
			v, ok := layout.DecodeValue(kv.Value)
			if !ok || kv.Version != 2 || v.Held.Sub(held) < -time.Millisecond || v.Held.Sub(held) > time.Second ||
				v.Mode != "exclusive" {
				t.Fatalf("entry %v", kv)
			}
			if err := h.Check(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Candidates' values may be large, and etcd takes 1.5 MiB in a request.
func TestRequestsThatSaySinceWhenAreBounded(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		const many, mostOfEtcd = 2 * hold.MaxHeld, 3 << 19 // 1.5 MiB
		largest, total := 0, 0                             // written by the link only, which calls under a mutex of its own
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if n := heldIn(c); n > 0 {
				total += n
				bytes := 0
				for _, op := range c.Request.(*pb.TxnRequest).Success {
					bytes += len(op.GetRequestTxn().Success[0].GetRequestPut().Value)
				}
				largest = max(largest, bytes)
			}
			return etcdfake.Fate{}
		})
		for i := range many {
			holdtest.MustAcquireAs(t, queue.New(p.Host, holdfast.KindElection, fmt.Sprint(i)),
				hold.Request{Request: queue.Request{Data: strings.Repeat("\"", layout.MaxData)}})
		}
		time.Sleep(time.Minute)
		p.Link.Plan(nil)
		if total != many || largest > mostOfEtcd || largest < mostOfEtcd/2 {
			t.Errorf("%d entries, at most %d bytes in a request, want %d and %d", total, largest, many, mostOfEtcd)
		}
	})
}

// etcd's own locks have empty values and ignore those of others, so entries at a foreign
// prefix say what they say elsewhere.
func TestEntryAtAForeignPrefixSaysWhoHolds(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		if _, err := hold.Acquire(t.Context(), p.QueueAt("/legacy/x"),
			hold.Request{Request: queue.Request{Owner: "me"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if v, ok := layout.DecodeValue(srv.Keys("/legacy/x/")[0].Value); !ok || v.Owner != "me" || v.Held.IsZero() {
			t.Errorf("%v, %v", v, ok)
		}
	})
}

// A request that says since when is not answered. It is made again, by the next poll.
func TestEntrySaysSinceWhenAlthoughARequestWasNotAnswered(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"lost": {LoseRequest: true}, "silent": holdtest.Silence, "reply lost": holdtest.LostReply,
	} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := holdtest.Start(t, srv)
			h := holdtest.MustAcquire(t, p.Queue("x"))
			p.Plan(func(kind string, n int) (f etcdfake.Fate) {
				if kind == "held" && n <= 3 { // and its repetitions
					f = fate
				}
				return f
			})
			time.Sleep(30 * time.Second)
			if v, _ := layout.DecodeValue(srv.Keys(h.Key())[0].Value); v.Held.IsZero() || h.Check() != nil {
				t.Errorf("%s: %+v; Check: %v", name, v, h.Check())
			}
			holdtest.MustRelease(t, h)
		})
	}
}

// What says since when comes second to what locks: a request a second for all holds, from a second after the first on,
// and no more.
func TestRequestsThatSaySinceWhenAreASecondApart(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		latest := time.Now()
		holdtest.MustHold(t, srv, holdtest.AcquireAll(kit.Within(t, time.Minute), p, 3*hold.MaxHeld))
		var after []time.Duration // written by the link only, which calls under a mutex of its own
		reads := 0
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if kit.KindOf(c) == "read" {
				reads++
			}
			if heldIn(c) > 0 {
				after = append(after, time.Since(latest))
				latest = time.Now()
			}
			return etcdfake.Fate{}
		})
		time.Sleep(time.Minute)
		p.Link.Plan(nil)
		outside := func(d time.Duration) bool { return d < time.Second || d > 2*time.Second-kit.Prompt }
		if len(after) != 3 || slices.ContainsFunc(after, outside) {
			t.Errorf("sent after %v", after)
		}
		if reads != 0 {
			t.Errorf("%d reads of what the session itself has written", reads)
		}
	})
}
