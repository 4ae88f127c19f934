package election_test

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/session"
)

// Invariants 7 and 8: a session each, so that every one of them has an entry
// of its own and a watch of its own; what they send is counted at the link
// they share. The time is virtual: on a busy machine an answer may take more than
// a second, and what that costs (the put may have been repeated, so the session
// makes sure that no copy is left) is another test's matter.
func TestTwoHundredCandidatesLeadInTurnAndEachIsWokenOnce(t *testing.T) {
	t.Parallel()
	const candidates = 200
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(nil)
		t.Cleanup(srv.Close)
		link := srv.Link()
		link.Delay(time.Millisecond)
		long := session.Options{TTL: 600 * time.Second, Clock: session.MonotonicClock()} // no renewal falls into the test
		els := make([]*election.Election, candidates)
		for i := range els {
			els[i] = election.New(open(t, link.Client(), long), "x")
		}
		leader := campaign(t, election.New(open(t, srv.Client(), long), "x"), "first")
		time.Sleep(time.Second) // the watches of the session keys stand
		before := link.Count()
		sent := func() map[string]int {
			now := link.Count()
			for method, n := range before {
				now[method] -= n
			}
			before = link.Count()
			maps.DeleteFunc(now, func(_ string, n int) bool { return n == 0 })
			return now
		}

		var mu sync.Mutex
		var order []fencing.Token
		var all sync.WaitGroup
		for _, el := range els {
			all.Go(func() {
				term, err := el.Campaign(deadline(t), "v")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, term.Token())
				mu.Unlock()
				resign(t, term)
			})
		}
		time.Sleep(time.Second)
		if got, want := sent(), map[string]int{"Txn": candidates, "Watch": candidates, "Range": candidates}; !maps.Equal(got, want) {
			t.Errorf("to queue, %d candidates sent %v, want %v", candidates, got, want)
		}
		resign(t, leader)
		all.Wait()
		if len(order) != candidates || !slices.IsSorted(order) {
			t.Errorf("%d led, in order of their entries: %v", len(order), slices.IsSorted(order))
		}
		// Each is woken by its watch, reads once whether it leads, and resigns.
		if got, want := sent(), map[string]int{"Txn": 2 * candidates}; !maps.Equal(got, want) {
			t.Errorf("to lead in turn, %d candidates sent %v, want %v", candidates, got, want)
		}
	})
}
