package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

var denied = etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}

// grantWithNext returns a grant, and what a call in its line returns, which ends with ctx.
func grantWithNext(ctx context.Context, t *testing.T, p *process) (*Grant, <-chan *Grant) {
	t.Helper()
	g := mustAcquire(t, p.queue("x"))
	next := acquireLater(ctx, p.queue("x"))
	synctest.Wait()
	return g, next
}

// The next caller is canceled while its entry is put, and that is deleted by hand. Neither is the holder's loss.
func TestHandOffTellsWhatBecameOfItsOwnEntryOnly(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		g, next := grantWithNext(ctx, t, p)
		p.PlanOne("hand-off", etcdfake.Fate{Reply: 10 * kit.OneWay})
		done := make(chan error, 1)
		go func() { done <- g.HandOff() }() // ends below
		time.Sleep(2 * kit.OneWay)
		giveUp()
		<-next
		put := srv.Keys(entriesX)
		if len(put) != 1 || string(put[0].Key) == g.Key {
			t.Fatalf("in the queue: %v", put)
		}
		srv.Delete(string(put[0].Key))
		if err := <-done; err != nil {
			t.Errorf("HandOff: %v", err)
		}
		mustHandOff(t, mustAcquire(t, p.queue("x")))
		kit.NothingStands(t, srv)
	})
}

// etcd refuses to put the entry of the next caller, who is canceled meanwhile. The one behind goes its own way.
func TestRefusedHandOffToACanceledCallerLetsTheNextOneIn(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		g, next := grantWithNext(ctx, t, p)
		last := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		synctest.Wait()
		p.Plan(func(kind string, _ int) (f etcdfake.Fate) {
			switch kind {
			case "hand-off":
				f = denied
			case "remove":
				f.Request = 10 * kit.OneWay
			}
			return f
		})
		done := make(chan error, 1)
		go func() { done <- g.HandOff() }() // ends below
		time.Sleep(6 * kit.OneWay)
		if n := p.Counts(); n["hand-off"] != 1 || n["remove"] != 1 {
			t.Fatalf("sent %v: this tests nothing", n)
		}
		giveUp()
		<-next
		if err := <-done; err != nil {
			t.Errorf("HandOff: %v", err)
		}
		p.Plan(nil)
		mustHandOff(t, <-last)
		kit.NothingStands(t, srv)
	})
}

// A hand-off was carried out, its reply was lost, and another client has deleted what it has put. The second copy finds
// neither entry.
func TestHandOffThatMayHaveBeenCarriedOutIsNoLoss(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g, next := grantWithNext(kit.Within(t, time.Minute), t, p)
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if kind == "hand-off" && n == 1 {
				f = etcdfake.Fate{LoseReply: true, Reply: 10 * kit.OneWay}
			}
			return f
		})
		done := make(chan error, 1)
		go func() { done <- g.HandOff() }() // ends below
		time.Sleep(2 * kit.OneWay)
		srv.Delete(string(srv.Keys(entriesX)[0].Key))
		if err := <-done; err != nil {
			t.Errorf("HandOff: %v", err)
		}
		mustHandOff(t, <-next)
		kit.NothingStands(t, srv)
	})
}

// The role of the session is withdrawn after a hand-off that was not answered. So the entry may be gone, or not.
func TestHandOffThatIsNotAnsweredAndThenRefusedIsUnknown(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g, next := grantWithNext(kit.Within(t, time.Minute), t, p)
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			switch {
			case kind == "hand-off" && n == 1:
				f = etcdfake.Fate{LoseRequest: true}
			case kind == "hand-off" || kind == "remove":
				f = denied
			}
			return f
		})
		if err := g.HandOff(); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("HandOff: %v", err)
		}
		p.Plan(nil)
		time.Sleep(2 * removeRetry)
		mustHandOff(t, <-next)
		kit.NothingStands(t, srv)
	})
}

// The hand-off was carried out, and what stands ahead of the entry that it has put cannot be read. That entry leaves,
// and the next caller queues by itself.
func TestHandOffWhoseNewEntryCannotBePlacedRemovesIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		g, next := grantWithNext(kit.Within(t, time.Minute), t, p)
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			switch {
			case kind == "hand-off" && n == 1:
				f = etcdfake.Fate{LoseReply: true}
			case kind == "read" && n == 2: // the first one finds the entry
				f = denied
			}
			return f
		})
		if err := g.HandOff(); err != nil {
			t.Errorf("HandOff: %v", err)
		}
		if kvs := srv.Keys(entriesX); len(kvs) != 0 {
			t.Errorf("in the queue: %v", kvs)
		}
		mustHandOff(t, <-next)
		kit.NothingStands(t, srv)
	})
}

// A hand-off that goes on although it does not know what its entry waits for would put one that does not wait for it.
func TestNothingIsHandedOffWhileWhatIsAheadIsUnknown(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		for range 3 {
			kit.JoinReader(t, srv, entriesX)
		}
		kit.Join(t, srv, entriesX)
		kit.JoinReader(t, srv, entriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		p.PlanAll("watch", etcdfake.Fate{Request: time.Hour}) // so it has not looked who is ahead
		head := acquireLater(ctx, p.queue("x"))
		kit.Queued(t, srv, entriesX, 6)
		nextCtx, end := context.WithCancel(kit.Within(t, time.Minute))
		next := acquireLater(nextCtx, p.queue("x"))
		synctest.Wait()
		p.PlanAll("read", denied)
		giveUp()
		<-head
		time.Sleep(kit.Prompt)
		if n := p.Counts(); n["read"] == 0 || n["hand-off"] != 0 || n["enqueue"] != 1 {
			t.Errorf("sent %v, want the put of the next one alone", n)
		}
		p.Plan(nil)
		end()
		<-next
	})
}

// The entry ahead has gone unheard, which the hand-off finds. It judges how, and is sent again.
func TestHandOffBehindAnEntryThatHasGoneUnheardIsSentAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		head := acquireLater(ctx, p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		synctest.Wait()
		p.PlanAll("event", etcdfake.Fate{Reply: time.Hour})
		ahead.Release()
		giveUp()
		<-head
		g := <-next
		if n := p.Counts(); n["hand-off"] != 2 || n["enqueue"]+n["remove"] != 0 {
			t.Errorf("sent %v, want two hand-offs", n)
		}
		p.Plan(nil)
		mustHandOff(t, g)
		kit.NothingStands(t, srv)
	})
}

// An entry that has not judged what went ahead of it is not replaced: its lock delay runs, or its place is not known.
func TestEntryIsNotReplacedBeforeItMayBeRemoved(t *testing.T) {
	for name, spoil := range map[string]func(e *entry){
		"its lock delay runs":    func(e *entry) { e.stage, e.wait.delay = placed, delayOf(kit.LockDelay) },
		"its place is not known": func(e *entry) { e.stage = created },
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				g := mustAcquire(t, p.queue("x"))
				e, next := g.entry, newTicket(g.Queue, Request{})
				g.Queue.shared.lines.Join(&next.Ticket, g.Queue.At.Entries, false)
				spoil(e)
				p.PlanAll("read", etcdfake.Fate{LoseRequest: true, Silent: true})
				ctx, cancel := context.WithTimeout(t.Context(), kit.LockDelay/10)
				defer cancel()
				for what, f := range map[string]func() error{
					"untilRemovable": func() error { return e.wait.untilRemovable(ctx) },
					"passOthers":     func() error { return e.wait.passOthers(ctx, &wait{}) },
					"put": func() error {
						return newAttempt([]*ticket{next}, g.Lease, false).put(ctx, condition{after: e})
					},
				} {
					if err := f(); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: %v", what, err)
					}
				}
				if n := p.Counts(); n["hand-off"] != 0 {
					t.Errorf("sent %v", n)
				}
				p.Plan(nil)
				e.stage, e.wait.delay = held, delay{}
				next.Cancel()
				mustHandOff(t, g)
			})
		})
	}
}
