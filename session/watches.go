package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

const (
	// armTimeout bounds the creation of a watch. A member creates it without asking the others, so one that takes
	// longer hangs.
	armTimeout = time.Second

	// The timeout doubles up to maxArmTimeout. If all members are slow, more watches add to their load.
	maxArmTimeout = 8 * time.Second

	// listEvery is the time between two lists of the members.
	listEvery = 30 * time.Second

	// When a watch ends, or a list was not answered, the members are listed within so long. Nothing is urgent: a member
	// that has left lets no more watches be needed. And one that dies ends watches of all sessions at once.
	listSpread = 5 * time.Second

	// A slot that no member is left for rests at least so long, and at most as long as the members are not listed.
	shortestRest = time.Second
)

// watches are the watches of the session key of one lease. The lease is watched while they stand on a majority of the
// voting members, no two on one: then one is on a member that is well, while a minority hangs, lags, or is cut off from
// this client alone. What is held on the lease need then not be asked about, but now and then. tests/models/quietmodel
// searches what can happen.
//
// How many members vote is what they say themselves, never what the client is configured with. As long as that is not
// known, or the client has fewer endpoints than must be watched, or its KV, Lease or Watcher was replaced, there is one
// watch, and the lease is never watched.
type watches struct {
	key       sessionKey
	work      *work
	replaced  *watching.Stream // what the watch is created on if the client's Watcher was replaced
	restoring chan struct{}    // full while a slot checks or restores the key
	again     *time.Timer      // lists the members

	mu        sync.Mutex      // protects what follows
	voters    map[uint64]bool // nil: not known
	endpoints int             // of the client, when the members were listed
	listing   bool
	hurried   bool // again lists them soon
	slots     []slot
}

// slot is a place for one watch.
type slot struct {
	runs   bool
	member uint64 // that its stream is on, or 0
	end    func() // ends that
	stands bool   // a read that was sent after its creation was answered
}

// errNoMember: each member that was met has the watch of another slot, or does not vote.
var errNoMember = errors.New("no other voting member was met")

func newWatches(w *work, key sessionKey) *watches {
	return &watches{key: key, work: w, replaced: watching.NewStream(), restoring: make(chan struct{}, 1)}
}

// start starts what ends with the lease, and is joined by Close.
func (w *watches) start() {
	if w.key.streams != nil {
		w.again = time.AfterFunc(listEvery, w.list)
		context.AfterFunc(w.key.lease.Context(), func() { w.again.Stop() })
	}
	w.openSlots()
	w.list()
}

// planLocked returns how many slots to have, and how many watches must stand for the lease to be watched; 0: none
// suffice.
func (w *watches) planLocked() (slots, needed int) {
	n := len(w.voters)
	needed = n/2 + 1
	switch {
	case n == 0 || w.endpoints < needed:
		return 1, 0
	case n == 3 && w.endpoints >= 3 && w.key.client.Username == "":
		// The third one tells if both others are on members that are sick. With a password each stream costs etcd a
		// login, and while a member is down this slot would try again and again.
		return 3, needed
	}
	return needed, needed
}

// publishLocked tells whether the lease is watched.
func (w *watches) publishLocked() {
	stand := 0
	for _, s := range w.slots {
		if s.stands && w.voters[s.member] {
			stand++
		}
	}
	_, needed := w.planLocked()
	w.key.lease.SetWatched(needed > 0 && stand >= needed)
}

// openSlots starts the slots that are missing.
func (w *watches) openSlots() {
	var start []int
	w.mu.Lock()
	want, _ := w.planLocked()
	for len(w.slots) < want {
		w.slots = append(w.slots, slot{})
	}
	for i := range want {
		if !w.slots[i].runs {
			w.slots[i].runs = true
			start = append(start, i)
		}
	}
	w.mu.Unlock()
	for _, i := range start {
		w.work.Go(func(context.Context) { w.keep(i) })
	}
}

// goesOn reports whether a slot is still to have a watch.
func (w *watches) goesOn(i int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	want, _ := w.planLocked()
	w.slots[i].runs = i < want
	return w.slots[i].runs
}

// keep keeps the watch of a slot until the lease is lost.
func (w *watches) keep(i int) {
	policy := w.key.opts.Retry
	policy.Max = min(cmp.Or(policy.Max, backoff.DefaultMax), time.Second)
	policy.Initial = min(cmp.Or(policy.Initial, backoff.DefaultInitial), policy.Max)
	pauses := retry.NewPauses(policy.Initial, policy.Max, policy.Multiplier, policy.Rand)
	rests := retry.NewPauses(shortestRest, listEvery-shortestRest, 2, policy.Rand)
	within := armTimeout
	for {
		healthy, err := w.hear(i, within)
		within = min(2*within, maxArmTimeout)
		if healthy {
			pauses.Reset()
			rests.Reset()
			within = armTimeout
		}
		pause := pauses.NextBackOff()
		if errors.Is(err, errNoMember) || w.key.lease.Watched() { // it is of no use now, or not needed
			pause = shortestRest + rests.NextBackOff()
		}
		select {
		case <-time.After(pause):
		case <-w.key.lease.Context().Done():
			return
		}
		if !w.goesOn(i) {
			return
		}
	}
}

// hear watches the key, and restores it when it is deleted. It returns then, or when the watch fails or is not created
// within the given time, and says whether it was healthy. What happened before the watch was created is found by a read
// that is sent afterwards; only when that is answered, the watch counts.
func (w *watches) hear(i int, within time.Duration) (healthy bool, err error) {
	ctx, clock := w.key.lease.Context(), w.key.opts.Clock
	st, err := w.open(ctx, i, within)
	if err != nil {
		return false, err
	}
	stands := clock()
	defer func() { healthy = clock()-stands >= watching.HealthyAfter }()
	defer st.end()
	defer w.ends(i) // it counts no more, before anything else
	// Until it is answered, polls tell what the watch would tell. So it needs no copies: when a leader is gone, all
	// watches of all sessions begin anew at once.
	read, err := requests.Ask(ctx, w.key.sender, requests.Unhurried, w.key.read)
	if err == nil {
		err = w.settle(func() error { return w.key.check(read) })
	}
	if err != nil {
		return false, err
	}
	w.count(i)
	for err == nil {
		var events []*mvccpb.Event
		events, err = st.next()
		for _, ev := range events {
			if ev.Type == mvccpb.DELETE {
				return false, w.settle(func() error { return w.key.restore(ev.Kv.ModRevision) })
			}
			w.key.lease.Heard(ev.Kv.ModRevision)
		}
	}
	return false, err
}

// settle lets one slot after the other check or restore the key: all of them hear that it was deleted.
func (w *watches) settle(f func() error) error {
	select {
	case w.restoring <- struct{}{}:
	case <-w.key.lease.Context().Done():
		return nil
	}
	defer func() { <-w.restoring }()
	return f()
}

// open opens the stream of a slot, on a member that no other slot has.
func (w *watches) open(ctx context.Context, i int, within time.Duration) (*stream, error) {
	if w.key.streams == nil {
		return armStream(ctx, w.replaced, w.key.client, w.key.name, within)
	}
	for range 2 * len(w.key.client.Endpoints()) { // round robin goes on, and other requests go in between
		st, err := openStream(ctx, w.key.streams, w.key.name, within)
		if err != nil {
			return nil, err
		}
		if w.claim(i, st) {
			return st, nil
		}
		st.end()
	}
	return nil, errNoMember
}

// claim reports whether a slot may have its watch on the member that a stream is on, and notes that it has.
func (w *watches) claim(i int, st *stream) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := slices.ContainsFunc(w.slots, func(s slot) bool { return s.member == st.member })
	if taken || w.voters != nil && !w.voters[st.member] {
		return false
	}
	w.slots[i].member, w.slots[i].end = st.member, st.end
	return true
}

// count records that the watch of a slot stands.
func (w *watches) count(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots[i].stands = true
	w.publishLocked()
}

// ends records that the watch of a slot has ended. Perhaps its member was removed, so the members are listed soon.
func (w *watches) ends(i int) {
	mayList := w.again != nil && w.key.lease.Context().Err() == nil
	w.mu.Lock()
	hurry := w.slots[i].stands && !w.hurried && mayList
	w.hurried = w.hurried || hurry
	w.slots[i].stands, w.slots[i].member = false, 0
	w.publishLocked()
	w.mu.Unlock()
	if hurry {
		w.again.Reset(retry.NewPauses(listSpread, listSpread, 1, w.key.opts.Retry.Rand).NextBackOff())
	}
}
