package queue

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The put has put a permit or a turn, and no reply says which.
func TestWhatIsFoundOfAPermit(t *testing.T) {
	t.Parallel()
	const put, ofPermit, turn, ofTurn = "1-a@5", "c:1-a@5", "1-b@7", "c:1-b@7"
	for name, c := range map[string]struct {
		found      []string // of the permit, its claim, the turn, its claim
		own, claim string
		isTurn     bool
	}{
		"nothing":                        {[]string{"", "", "", ""}, "", "", false},
		"a permit":                       {[]string{put, ofPermit, "", ""}, put, ofPermit, false},
		"a permit without its claim":     {[]string{put, "", "", ""}, put, "", false},
		"the claim of a deleted permit":  {[]string{"", ofPermit, "", ""}, "", ofPermit, false},
		"a turn":                         {[]string{"", "", turn, ofTurn}, turn, ofTurn, true},
		"a turn without its claim":       {[]string{"", "", turn, ""}, turn, "", true},
		"the claim of a deleted turn":    {[]string{"", "", "", ofTurn}, "", ofTurn, true},
		"a turn, and a permit's old one": {[]string{put, ofPermit, turn, ofTurn}, turn, ofTurn, true},
	} {
		home := semaphoreX.PermitKey(1, "a")
		q := &Queue{scope: scope{At: semaphoreX}, shared: new(shared)}
		e := &entry{Queue: q, caller: newCaller(q, Request{}), entryKeys: entryKeys{Key: home, home: home}}
		p := &permit{e: e}
		const before = 2 // other replies
		own, claim := p.found(reads(semaphoreX, append([]string{"o@1", "o@2"}, c.found...)...), before)
		if got := shorten(semaphoreX, own); got != c.own {
			t.Errorf("%s: %q stands, want %q", name, got, c.own)
		}
		if got := shorten(semaphoreX, claim); got != c.claim {
			t.Errorf("%s: the claim is %q, want %q", name, got, c.claim)
		}
		if p.turn != c.isTurn || (e.Key == semaphoreX.TurnKey(home)) != c.isTurn || (e.Created == 7) != c.isTurn {
			t.Errorf("%s: turn %v at %s, created at %d", name, p.turn, e.Key, e.Created)
		}
	}
}

// etcd returns keys in the order of their names.
func TestTurnsWaitInTheOrderOfTheirCreation(t *testing.T) {
	t.Parallel()
	turn := func(id string, rev int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(semaphoreX.TurnKey(semaphoreX.PermitKey(1, id))), CreateRevision: rev, Version: 1}
	}
	s := standingIn(semaphoreX, turn("a", 9), turn("b", 5), turn("c", 7))
	var order []int64
	for _, kv := range s.waiting {
		order = append(order, kv.CreateRevision)
	}
	if !slices.Equal(order, []int64{5, 7, 9}) {
		t.Errorf("the turns wait in the order %v", order)
	}
}

// The limit was lowered, so more hold than the reply to a put shows. A claim whose turn was left out is not dead: else
// the delay of a later crash would seem over.
func TestReplyThatWasCutOffShowsNothingDead(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		turns := kit.Turns("x")
		var holders []*kit.Peer
		for range 4 {
			peer := kit.Join(t, srv, turns+"1-")
			for _, key := range []string{peer.Key, peer.Claim} { // it is marked
				if _, err := srv.Client(t).Put(t.Context(), key, "", clientv3.WithIgnoreLease()); err != nil {
					t.Fatal(err)
				}
			}
			holders = append(holders, peer)
		}
		kit.SetLimit(t, srv, 1)
		p := start(t, srv)
		q := p.permits(1, 1)
		done := acquireLater(kit.Within(t, time.Minute), q)
		kit.Queued(t, srv, permitsX, 5)
		if n := len(q.shared.delays.of); n != 0 || len(done) != 0 {
			t.Errorf("%d claims seem dead, and all their turns stand; it holds: %v", n, len(done) != 0)
		}
		for _, peer := range holders {
			peer.Release()
		}
		mustHandOff(t, <-done)
	})
}

// The reply to the put of a turn is lost. The turn keeps its place.
func TestTurnWhosePutIsFoundDoneKeepsItsPlace(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		g := mustAcquire(t, start(t, srv).permits(1, 1))
		p := start(t, srv)
		lost := false
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if kind == "hand-off" { // the permit has no room: its turn is put
				f.LoseReply, lost = n == 1, true
			}
			return f
		})
		done := acquireLater(kit.Within(t, time.Minute), p.permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		time.Sleep(10 * time.Second)
		turns := srv.Keys(kit.Turns("x"))
		if !lost || len(turns) != 1 {
			t.Fatalf("turns: %v: this tests nothing", turns)
		}
		mustHandOff(t, g)
		next := <-done
		if next == nil || next.Created != turns[0].CreateRevision || next.Key != string(turns[0].Key) {
			t.Errorf("it holds by %+v, and its turn was %v", next, turns)
		}
		if n := kit.PutsEver(srv, kit.Turns("x")); n != 1 {
			t.Errorf("%d turns were put", n)
		}
		mustHandOff(t, next)
		kit.NothingStands(t, srv)
	})
}

// The place of an entry is known from the reply to its put, also if a look has to say more.
func TestPermitIsPlacedByItsPut(t *testing.T) {
	for name, c := range map[string]struct {
		holders int
		turn    bool // it is put as a turn
	}{
		"a turn, and none waits ahead": {1, true}, "a permit, and more hold than the reply shows": {4, false},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				kit.SetLimit(t, srv, 1)
				for range c.holders {
					kit.JoinPermit(t, srv, permitsX, 1)
				}
				p := start(t, srv)
				callers := Set{p.permits(1, 1)}.join(Request{})
				a := newAttempt(callers, p.Host.Lease())
				e := a.entries[0]
				e.permit.turn = c.turn
				if err := a.put(t.Context()); err != nil || e.stage != placed || !e.permit.next.wait {
					t.Errorf("%v; stage %v; it waits: %v", err, e.stage, e.permit.next.wait)
				}
				giveUp(callers, a)
			})
		})
	}
}

// Another session may mark a turn while it waits for a claim, or for the turn ahead.
func TestTurnThatIsMarkedWaitsForNothing(t *testing.T) {
	t.Parallel()
	e := &entry{Queue: &Queue{scope: scope{At: semaphoreX}}, of: new(attempt)}
	e.permit = &permit{e: e, turn: true}
	e.ahead, e.claims = &mvccpb.KeyValue{Key: []byte("ahead")}, []deadClaim{{key: "dead"}}
	const now = time.Second
	e.permit.noteMarked(5, 6, now)
	if !e.isFree() || e.ahead != nil || len(e.claims) != 0 ||
		e.Modified != 5 || e.of.revision != 6 || e.of.readSent != now {
		t.Errorf("%+v, of %+v", e.wait, e.of)
	}
}

// The reply comes a moment after the caller has gone. Then nothing has failed.
func TestCallThatEndsAsItsTurnIsPutTellsOfNoFailure(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		g := mustAcquire(t, start(t, srv).permits(1, 1))
		p := start(t, srv)
		p.PlanOne("hand-off", etcdfake.Fate{Reply: 10 * kit.OneWay})
		err := <-acquireErr(kit.Within(t, 6*kit.OneWay), p.permits(1, 1))
		if n := p.Counts()["hand-off"]; n != 1 || err == nil || strings.Contains(err.Error(), "last error") {
			t.Errorf("%v; %d turns were sent", err, n)
		}
		mustHandOff(t, g)
		kit.NothingStands(t, srv)
	})
}

// A permit counts the permits ahead, and a turn the turns. Keys are twice as many, and the limit is one of them.
func TestPositionOfAPermitCountsThoseAhead(t *testing.T) {
	for _, c := range []struct{ permits, turns, want int }{{0, 0, 0}, {1, 0, 1}, {2, 0, 2}, {1, 1, 1}, {1, 3, 3}} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			kit.SetLimit(t, srv, 5)
			for range c.permits {
				kit.JoinPermit(t, srv, permitsX, 1)
			}
			for range c.turns {
				kit.Join(t, srv, kit.Turns("x")+"1-")
			}
			p := start(t, srv)
			callers := Set{p.permits(5, 1)}.join(Request{})
			a := newAttempt(callers, p.Host.Lease())
			if err := a.put(t.Context()); err != nil || a.entries[0].position != int64(c.want) {
				t.Errorf("behind %d permits and %d turns: %v; position %d", c.permits, c.turns, err, a.entries[0].position)
			}
			giveUp(callers, a)
		})
	}
}
