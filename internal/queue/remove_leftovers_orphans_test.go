package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A copy of a put arrives long after the entry of another copy was released.
func TestEntryThatARepeatedWriteLeftIsRemoved(t *testing.T) {
	for name, queueOf := range map[string]func(p *holdtest.Process) *queue.Queue{
		"at a name": func(p *holdtest.Process) *queue.Queue { return p.Queue("x/y") },
		"of an election": func(p *holdtest.Process) *queue.Queue {
			return queue.New(p.Host, holdfast.KindElection, "x")
		},
		"at a foreign prefix": func(p *holdtest.Process) *queue.Queue {
			return queue.At(p.Host, holdfast.KindLock, "theirs/x")
		},
		"of a reader":         func(p *holdtest.Process) *queue.Queue { return p.Queue("x").Readers() },
		"of a foreign reader": func(p *holdtest.Process) *queue.Queue { return p.QueueAt("theirs/x").Readers() },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				q := queueOf(p)
				h := holdtest.MustAcquire(t, q)
				holdtest.MustRelease(t, h)
				p.Put(t, h.Key())
				time.Sleep(2 * queue.ScanEvery)
				if kvs := srv.Keys(q.Layout().Entries); len(kvs) != 0 {
					t.Errorf("stands after %v: %s", 2*queue.ScanEvery, kvs[0].Key)
				}
				holdtest.MustRelease(t, holdtest.MustAcquire(t, q))
			})
		})
	}
}

// An orphan is removed by the rule for entries that never held.
func TestOrphanBehindARevokedEntryIsRemovedAfterTheLockDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, behind := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		holdtest.MustRelease(t, h)
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		p.Put(t, h.Key())
		last := holdtest.AcquireLater(kit.Within(t, time.Hour), behind.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
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
		if took := holdtest.Granted(t, srv, last).At.Sub(revoked); took < kit.LockDelay {
			t.Errorf("the next waiter was granted %v after the revocation", took)
		}
	})
}

func TestKeysOfTheUserOnTheLeaseSurvive(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		holdtest.MustRelease(t, holdtest.MustAcquire(t, p.Queue("x")))
		holdtest.MustRelease(t, holdtest.MustAcquire(t, queue.At(p.Host, holdfast.KindLock, "theirs/x")))
		own := fmt.Sprintf("%x", int64(p.Sess.Lease()))
		const nonce = "ABCDEFGHIJKLMNOP"
		keys := []string{
			"mine", "mine/" + own + "-" + nonce, // below a prefix that was never used
			own + "-" + nonce, // below none
			"theirs/x/" + own, "theirs/x/" + own + "-short", "theirs/x/" + own + "-" + nonce + "Q",
			"theirs/x/y/" + own + "-" + nonce, "theirs/" + own + "-" + nonce,
			"theirs/x/" + own + "-host.example.com", "theirs/x/" + own + "-abcdefghijklmnop", // as long as ours
			"holdfast/lock/x/" + own + "-" + nonce, "holdfast/lock/x/@/1" + own + "-" + nonce,
			"holdfast/other/x/@/" + own + "-" + nonce, "other/lock/x/@/" + own + "-" + nonce,
		}
		for _, key := range keys {
			p.Put(t, key)
		}
		time.Sleep(5 * queue.ScanEvery)
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
		p := holdtest.Start(t, srv)
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
		q := p.Queue("x")
		h := holdtest.MustAcquire(t, q)
		key := h.Key()
		for range 2 { // each list shows the entry of a hold that has ended since
			<-lists
			time.Sleep(2 * kit.OneWay)
			holdtest.MustRelease(t, h)
			time.Sleep(slow + kit.OneWay)
			h = holdtest.MustAcquire(t, q)
		}
		time.Sleep(2 * queue.ScanEvery)
		if err := h.Check(); err != nil || h.Key() == key && len(srv.Keys(key)) != 1 {
			t.Errorf("the hold: %v; entries %v", err, srv.Keys(q.Layout().Entries))
		}
	})
}

// A scan that finds no orphan is one request.
func TestScansAreRare(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		holdtest.MustRelease(t, holdtest.MustAcquire(t, p.Queue("x")))
		const long = time.Hour
		before := p.Link.Count()["LeaseTimeToLive"]
		time.Sleep(long)
		scans := p.Link.Count()["LeaseTimeToLive"] - before
		if want := int(long / queue.ScanEvery); scans < want*9/10 || scans > want*11/10 {
			t.Errorf("%d lists in %v, want about %d", scans, long, want)
		}
	})
}
