package election_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

// Invariants 7 and 8: a session each, so that every one of them has an entry
// of its own and a watch of its own; what they send is counted at the client
// they share.
func TestTwoHundredCandidatesLeadInTurnAndEachIsWokenOnce(t *testing.T) {
	t.Parallel()
	const candidates = 200
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	ctx := deadline(t)
	els := make([]*election.Election, candidates)
	for i := range els { // no renewal falls into the test: TTL/3 is 200 s
		els[i] = election.New(open(t, link.Client(), session.Options{TTL: 600 * time.Second}), "x")
	}
	leader := campaign(t, election.New(open(t, srv.Client(t), session.Options{}), "x"), "first")
	before := link.Count()

	var mu sync.Mutex
	var order []fencing.Token
	var all sync.WaitGroup
	for _, el := range els {
		all.Go(func() {
			term, err := el.Campaign(ctx, "v")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, term.Token())
			mu.Unlock()
			if err := term.Resign(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	srv.WaitForKeys(t, prefix, candidates+1)
	if err := link.Wait(ctx, "Range", before["Range"]+candidates); err != nil { // each waits for the one ahead
		t.Fatal(err)
	}
	waiting := link.Count()
	resign(t, leader)
	all.Wait()

	if len(order) != candidates || !slices.IsSorted(order) {
		t.Errorf("%d led, in order of their entries: %v", len(order), slices.IsSorted(order))
	}
	if sent := waiting.Since(before); sent["Txn"] != candidates || sent["Range"] != candidates || sent["Watch"] != candidates {
		t.Errorf("to queue, %d candidates sent %v", candidates, sent)
	}
	// Each is woken by its watch, reads once whether it leads, and resigns.
	// (Its watch is ended by one more message, which may come later.)
	sent := link.Count().Since(waiting)
	if sent["Txn"] != candidates || sent["Range"] != candidates || sent["Watch"] > candidates {
		t.Errorf("to lead in turn, %d candidates sent %v", candidates, sent)
	}
}
