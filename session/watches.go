package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/watching"
)

const (
	// armTimeout bounds the creation of a watch. A member creates it without asking other members: if it takes longer, it
	// hangs. Round trips may take as long; meanwhile what is held is polled.
	armTimeout = 5 * time.Second

	// The members are listed every listEvery, or listAgain after a list without a reply. Nothing is urgent: if a member
	// has left meanwhile, at worst too many watches are needed, and what is held is polled. A slot for which no member is
	// left, or whose watch is not needed now, rests for listEvery, too.
	listEvery = 30 * time.Second
	listAgain = 5 * time.Second
)

// watches keeps the watches of the session key of one lease. The lease is watched while they stand on a majority of the
// voting members, no two on the same. Holders then ask etcd rarely. tests/models/quietmodel searches what can happen.
//
// While it is not known who votes, or the client has fewer endpoints than must be watched, or its KV, Lease or Watcher
// was replaced, there is a single watch, and the lease does not count as watched.
type watches struct {
	key       sessionKey
	work      *work
	replaced  *watching.Stream // for the watch, if the client's Watcher was replaced
	restoring chan struct{}    // full while a slot checks or restores the key

	mu        sync.Mutex      // protects what follows
	voters    map[uint64]bool // nil: not known
	endpoints int             // of the client, when the members were listed
	slots     []slot          // of goroutines; each stays until the lease is lost
}

// slot is a place for one watch.
type slot struct {
	member uint64 // where its stream is, or 0
	stands bool   // etcd has replied to a read sent after the creation of the watch
}

// errNoMember: every member met has the watch of another slot, or does not vote.
var errNoMember = errors.New("no other voting member was met")

func newWatches(w *work, key sessionKey) *watches {
	return &watches{key: key, work: w, replaced: watching.NewStream(), restoring: make(chan struct{}, 1)}
}

// start starts the goroutines of the watches. They end with the lease, and Close joins them.
func (w *watches) start() {
	w.openSlots()
	if w.key.streams != nil {
		w.work.Go(func(context.Context) { w.list() })
	}
}

// list asks again and again which members vote, until the lease is lost, and opens the watches that are missing.
func (w *watches) list() {
	for pause := time.Duration(0); lease.Sleep(w.key.lease.Context(), pause); {
		voters := w.members()
		if voters == nil { // not known: the voters of the last list count
			pause = listAgain
			continue
		}
		endpoints := len(w.key.Client.Endpoints())
		w.mu.Lock()
		w.voters, w.endpoints = voters, endpoints
		w.publishLocked()
		w.mu.Unlock()
		w.openSlots()
		pause = listEvery
	}
}

// members returns the IDs of the members that vote, or nil if they are not known.
func (w *watches) members() map[uint64]bool {
	resp, _, err := requests.Once(w.key.lease.Context(), w.key.Sender, requests.Unhurried,
		func(ctx context.Context) (*pb.MemberListResponse, error) {
			request := &pb.MemberListRequest{Linearizable: true}
			resp, err := pb.NewClusterClient(w.key.streams).MemberList(ctx, request, grpc.WaitForReady(true))
			return resp, clientv3.ContextError(ctx, err)
		})
	if err != nil || resp.Header.GetClusterId() != w.key.lease.Cluster() {
		return nil
	}
	voters := make(map[uint64]bool)
	for _, m := range resp.Members {
		if !m.IsLearner {
			voters[m.ID] = true
		}
	}
	return voters
}

// planLocked returns how many slots to have, and how many watches must stand for the lease to be watched. needed is 0
// if no number suffices.
func (w *watches) planLocked() (slots, needed int) {
	n := len(w.voters) // by the members' own word: the endpoints may be fewer
	// While a minority hangs, lags, or is cut off from this client alone, at least one of a majority of watches is on a
	// member that is well. For example, with members A, B and C:
	//
	//	0 s  the key is watched on A and B: the lease is watched
	//	1 s  A hangs. Its watch says nothing, and still counts
	//	2 s  the lease is revoked. B tells it
	needed = n/2 + 1
	switch {
	case n == 0 || w.endpoints < needed:
		return 1, 0
	case n == 3 && w.endpoints >= 3 && w.key.Client.Username == "":
		// The third tells if the members of both others are sick. With a password each stream costs etcd a login, and
		// while a member is down this slot would try again and again.
		return 3, needed
	}
	return needed, needed
}

// publishLocked tells the lease whether it is watched.
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

// openSlots starts the missing slots.
func (w *watches) openSlots() {
	w.mu.Lock()
	first := len(w.slots)
	want, _ := w.planLocked()
	w.slots = append(w.slots, make([]slot, max(0, want-first))...)
	w.mu.Unlock()
	for i := first; i < want; i++ {
		w.work.Go(func(context.Context) { w.keep(i) })
	}
}

// keep keeps the watch of a slot until the lease is lost.
func (w *watches) keep(i int) {
	policy := w.key.Retry
	policy.Max = min(cmp.Or(policy.Max, backoff.DefaultMax), time.Second)
	policy.Initial = min(cmp.Or(policy.Initial, backoff.DefaultInitial), policy.Max)
	pauses := retry.NewPauses(policy.Initial, policy.Max, policy.Rand)
	for {
		healthy, err := w.hear(i)
		if healthy {
			pauses.Reset()
		}
		pause := pauses.NextBackOff()
		if errors.Is(err, errNoMember) || w.key.lease.Watched() { // no use now, or no need
			pause = lease.Jittered(listEvery)
		}
		if !lease.Sleep(w.key.lease.Context(), pause) {
			return
		}
	}
}

// hear watches the key, and restores it when it is deleted. It returns after that, or when the watch fails or is not
// created in time. It says whether the watch was healthy.
func (w *watches) hear(i int) (healthy bool, err error) {
	ctx, clock := w.key.lease.Context(), w.key.Clock
	st, err := w.open(ctx, i)
	if err != nil {
		return false, err
	}
	stands := clock()
	defer func() { healthy = clock()-stands >= watching.HealthyAfter }()
	defer st.end()
	defer w.set(i, slot{}) // it counts no more, before anything else
	// A read after the creation finds what has happened before. Until its reply the watch does not count, and polls tell
	// what it would tell. So the read needs no copies: when a leader is gone, all watches of all sessions begin anew.
	read, err := requests.Ask(ctx, w.key.Sender, requests.Unhurried, w.key.read)
	if err == nil {
		err = w.settle(func() error { return w.key.check(read) })
	}
	if err != nil {
		return false, err
	}
	w.set(i, slot{st.member, true})
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

// settle makes the slots check or restore the key one after the other.
func (w *watches) settle(f func() error) error {
	// All of them hear a deletion, and one put will do. Those that come later find that the gate has moved.
	select {
	case w.restoring <- struct{}{}:
	case <-w.key.lease.Context().Done():
		return nil
	}
	defer func() { <-w.restoring }()
	return f()
}

// open opens the stream of a slot, on a member without another slot.
func (w *watches) open(ctx context.Context, i int) (*stream, error) {
	if w.key.streams == nil {
		return armStream(ctx, w.replaced, w.key.Client, w.key.name)
	}
	for range 2 * len(w.key.Client.Endpoints()) { // round robin goes on, and other requests go in between
		st, err := openStream(ctx, w.key.streams, w.key.name)
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

// claim gives a slot the member of a stream. It reports false if another slot has that member, or if it does not vote.
func (w *watches) claim(i int, st *stream) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := slices.ContainsFunc(w.slots, func(s slot) bool { return s.member == st.member })
	if taken || w.voters != nil && !w.voters[st.member] {
		return false
	}
	w.slots[i].member = st.member
	return true
}

// set records that the watch of a slot stands, or has ended.
func (w *watches) set(i int, now slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots[i] = now
	w.publishLocked()
}
