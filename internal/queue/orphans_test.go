package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// put puts a key with the session's lease.
func (p *process) put(t *testing.T, key string) {
	t.Helper()
	if _, err := p.Link.Client().Put(t.Context(), key, "", clientv3.WithLease(p.Sess.Lease())); err != nil {
		t.Fatal(err)
	}
}

// A copy of a put arrives long after the entry of another copy was released.
func TestEntryThatARepeatedWriteLeftIsRemoved(t *testing.T) {
	for name, queue := range map[string]func(p *process) *Queue{
		"at a name":           func(p *process) *Queue { return p.queue("x/y") },
		"of an election":      func(p *process) *Queue { return New(p.Host, "election", "x") },
		"at a foreign prefix": func(p *process) *Queue { return At(p.Host, "lock", "theirs/x") },
		"of a reader":         func(p *process) *Queue { return p.queue("x").Readers() },
		"of a foreign reader": func(p *process) *Queue { return p.queueAt("theirs/x").Readers() },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				q := queue(p)
				h := mustAcquire(t, q)
				mustRelease(t, h)
				p.put(t, h.Key())
				time.Sleep(2 * scanEvery)
				if kvs := srv.Keys(q.at.Entries); len(kvs) != 0 {
					t.Errorf("stands after %v: %s", 2*scanEvery, kvs[0].Key)
				}
				mustRelease(t, mustAcquire(t, q))
			})
		})
	}
}

// An orphan is removed by the rule for entries that never held.
func TestOrphanBehindARevokedEntryIsRemovedAfterTheLockDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, behind := start(t, srv), start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		mustRelease(t, h)
		ahead := kit.Join(t, srv, entriesX)
		p.put(t, h.Key())
		last := acquireLater(kit.Within(t, time.Hour), behind.queue("x"))
		kit.Queued(t, srv, entriesX, 3)
		swept := make(chan struct{}, 100)
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if kit.KindOf(c) == "read" { // of the sweeper
				swept <- struct{}{}
				return etcdfake.Fate{Request: kit.Prompt}
			}
			return etcdfake.Fate{}
		})
		<-swept
		ahead.Revoke()
		revoked := time.Now()
		if took := granted(t, srv, last).at.Sub(revoked); took < kit.LockDelay {
			t.Errorf("the next waiter was granted %v after the revocation", took)
		}
	})
}

func TestKeysOfTheUserOnTheLeaseSurvive(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		mustRelease(t, mustAcquire(t, p.queue("x")))
		mustRelease(t, mustAcquire(t, At(p.Host, "lock", "theirs/x")))
		own := fmt.Sprintf("%x", int64(p.Sess.Lease()))
		const nonce = "ABCDEFGHIJKLMNOP"
		keys := []string{
			"mine", "mine/" + own + "-" + nonce, // below a prefix that was never used
			"theirs/x/" + own, "theirs/x/" + own + "-short", "theirs/x/" + own + "-" + nonce + "Q",
			"theirs/x/y/" + own + "-" + nonce, "theirs/" + own + "-" + nonce,
			"theirs/x/" + own + "-host.example.com", "theirs/x/" + own + "-abcdefghijklmnop", // as long as ours
			"holdfast/lock/x/" + own + "-" + nonce, "holdfast/lock/x/@/1" + own + "-" + nonce,
			"holdfast/other/x/@/" + own + "-" + nonce, "other/lock/x/@/" + own + "-" + nonce,
		}
		for _, key := range keys {
			p.put(t, key)
		}
		time.Sleep(5 * scanEvery)
		stand := kit.KeysOf(srv.Keys(""))
		for _, key := range keys {
			if !slices.Contains(stand, key) {
				t.Errorf("%s was deleted", key)
			}
		}
	})
}

// An entry stands when the list is made and is released before the list arrives. Its key may
// be used again by then.
func TestEntryOfALiveAttemptIsNeverTouched(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		const slow = 3 * time.Second
		lists := make(chan struct{}, 1000)
		var latest time.Time
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			switch {
			case c.Method == "LeaseTimeToLive":
				if time.Since(latest) > slow { // otherwise it is the same request, sent again
					latest = time.Now()
					lists <- struct{}{}
				}
				return etcdfake.Fate{Reply: slow}
			case kit.KindOf(c) == "read":
				return etcdfake.Fate{Request: 100 * time.Millisecond}
			}
			return etcdfake.Fate{}
		})
		q := p.queue("x")
		h := mustAcquire(t, q)
		key := h.Key()
		for range 2 { // each list shows the entry of a hold that has ended since
			<-lists
			time.Sleep(2 * kit.OneWay)
			mustRelease(t, h)
			time.Sleep(slow + kit.OneWay)
			h = mustAcquire(t, q)
		}
		time.Sleep(2 * scanEvery)
		if err := h.Check(); err != nil || h.Key() == key && len(srv.Keys(key)) != 1 {
			t.Errorf("the hold: %v; entries %v", err, srv.Keys(q.at.Entries))
		}
	})
}

// The key of an orphan is not used for another entry.
func TestKeyOfAnOrphanIsNotUsedAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		h := mustAcquire(t, q)
		mustRelease(t, h)
		orphan := &entry{q: q, lease: h.entry.lease}
		if !q.shared.keys.register(orphan, h.Key()) {
			t.Fatal("the key of a released entry is in use")
		}
		next := mustAcquire(t, q)
		if next.Key() == orphan.key {
			t.Error("it was used again")
		}
		if q.shared.keys.register(&entry{q: q, lease: h.entry.lease}, next.Key()) {
			t.Error("the key of a hold was given to a orphan")
		}
		q.shared.keys.unregister(orphan)
	})
}

// A put of which a copy may be unanswered has the next scan come soon, and the scans go on after it.
func TestScanComesSoonAfterAnUnansweredPut(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.queue("x"))
		mustRelease(t, h)
		for i := range 3 {
			p.put(t, h.Key())
			within := 2 * scanEvery
			if i == 0 {
				p.queue("x").shared.orphans.scanSoon()
				within = (scanSoonAfter + scanAgainAfter) * 12 / 10
			}
			time.Sleep(within)
			if kvs := srv.Keys(entriesX); len(kvs) != 0 {
				t.Errorf("number %d stands after %v: %s", i+1, within, kvs[0].Key)
			}
		}
	})
}

// A scan that finds no orphan is one request.
func TestScansAreRare(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		mustRelease(t, mustAcquire(t, p.queue("x")))
		const long = time.Hour
		before := p.Link.Count()["LeaseTimeToLive"]
		time.Sleep(long)
		scans := p.Link.Count()["LeaseTimeToLive"] - before
		if want := int(long / scanEvery); scans < want*9/10 || scans > want*11/10 {
			t.Errorf("%d lists in %v, want about %d", scans, long, want)
		}
	})
}
