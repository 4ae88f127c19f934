package queue

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// queueUp returns a line whose head stays, and n tickets behind it.
func queueUp(n int) (*line, []*ticket) {
	s := &shared{lines: make(map[lineKey]*line)}
	q := &Queue{at: layout.Queue{Entries: "/x/@/"}}
	ln := s.join(&ticket{q: q, turn: make(chan *entry, 1)}, false)
	all := make([]*ticket, n)
	for i := range all {
		all[i] = &ticket{q: q}
		s.join(all[i], false)
	}
	return ln, all
}

func TestCanceledTicketsKeepTheOrderOfTheOthers(t *testing.T) {
	ln, all := queueUp(7)
	for _, i := range []int{0, 3, 6, 3} { // ticket 3 twice
		if !ln.cancel(all[i]) {
			t.Errorf("ticket %d had its turn", i)
		}
	}
	var order []int
	for !ln.headAlone() {
		order = append(order, slices.Index(all, ln.takeFirst()))
	}
	if !slices.Equal(order, []int{1, 2, 4, 5}) {
		t.Errorf("the others came in order %v", order)
	}
	if taken := ln.takeFirst(); taken != nil {
		t.Errorf("an empty line gave %v", taken)
	}
}

// Several leases are revoked at once, the waiter's among them. The holder that it waited for
// may not have been told of its own loss yet.
func TestAttemptsThatLostTheirLeaseWaitForTheLockDelayOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		ctx := kit.Within(t, time.Minute)
		line := []<-chan result{acquireLater(ctx, p.queue("x"))}
		kit.Queued(t, srv, entriesX, 2)
		for range 3 {
			line = append(line, acquireLater(ctx, p.queue("x")))
			time.Sleep(kit.OneWay)
		}
		ahead.Revoke()
		srv.Revoke(p.Sess.Lease())
		r := granted(t, srv, line[0])
		notBefore(t, srv, r, kit.LockDelay)
		first := r.at
		for _, next := range line[1:] {
			mustRelease(t, r.h)
			r = granted(t, srv, next)
		}
		if took := r.at.Sub(first); took > kit.Prompt {
			t.Errorf("the others in the line held after %v: the first has waited for all of them", took)
		}
	})
}

// As long as the head of the line has not held, its delay does not count for the others.
func TestHandOffByAHeadThatNeverHeldKeepsTheDelayOfTheNext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		head := acquireLater(ctx, p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		time.Sleep(kit.OneWay)
		ahead.Revoke()
		srv.Revoke(p.Sess.Lease())
		time.Sleep(kit.Prompt)
		giveUp()
		if r := <-head; r.err == nil {
			t.Fatal("granted before the lock delay")
		}
		notBefore(t, srv, granted(t, srv, next), kit.LockDelay)
	})
}

// An attempt begins while the session has no lease, and the session loses the next lease,
// too.
func TestAttemptThatBeganWithoutALeaseAndLosesTheNextIsDelayed(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.Join(t, srv, entriesX)
		lost := p.Host.Lease()
		lost.Lose(holdfast.CauseExpired, nil)
		done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		if p.Host.Lease() == lost {
			t.Fatal("no lease has followed")
		}
		second := p.Host.Lease()
		srv.Revoke(second.ID())
		for p.Host.Lease() == second {
			time.Sleep(time.Millisecond)
		}
		ahead.Revoke() // before the new entry is there
		notBefore(t, srv, granted(t, srv, done), kit.LockDelay)
	})
}

// The time per ticket must not grow with the line: when a service shuts down, all are
// canceled at once.
func BenchmarkCancelAllTicketsOfALine(b *testing.B) {
	for _, n := range []int{1000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				ln, all := queueUp(n)
				b.StartTimer()
				for i := range all {
					ln.cancel(all[len(all)-1-i])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/ticket")
		})
	}
}

// A caller that has returned counts no longer once another one is the head, or waits.
func TestLineIsLeftOverIfAllItsCallersHaveReturned(t *testing.T) {
	t.Parallel()
	a, b := new(ticket), new(ticket)
	for name, c := range map[string]struct {
		head, returned, waits *ticket
		want                  bool
	}{
		"the head waits or holds":              {a, nil, nil, false},
		"the head has returned":                {a, a, nil, true},
		"the head has returned, another waits": {a, a, b, false},
		"an earlier one has returned":          {b, a, nil, false},
	} {
		ln := &line{head: c.head, returned: c.returned}
		if c.waits != nil {
			ln.waiting.PushBack(c.waits)
		}
		if got := ln.leftOver(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
