// Package leftovers is what unanswered requests of a session may leave in etcd, and how it is removed.
//
// A request without a reply may have been carried out, or may be at any later time.
//
//   - The put of an entry is sent again until it is answered. Its key belongs to one attempt at a time, so a read finds
//     what an earlier copy did. Keys knows the keys in use, and those free to be used again.
//   - The put compares the mod revision of the session key, the gate. When an attempt ends with an unanswered copy, the
//     Sweeper puts the session key again. From then on the copy does nothing. Then the Sweeper has the entry removed,
//     if it stands.
//   - A KV that the program has replaced may repeat a put by itself. So each of its puts counts as one with an
//     unanswered copy. The session's own KV, and that of etcd's package namespace, repeat none.
//   - Whatever is missed expires with the lease.
package leftovers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Suspect is an entry of an ended attempt. It may stand, or appear.
type Suspect struct {
	Key          string       // Keys knows the entry by it
	Keys         []string     // where it may stand, at one at most, and the keys of its claims
	Lease        *lease.Lease // of the entry
	UnansweredAt int64        // the gate of the latest unanswered copy of the put; 0 if all were answered
	Kept         int64        // the create revision of the entry if MinHold, or a ticket, keeps it at its key; otherwise 0
	Attached     bool         // an Attach was given up: what is not on this session's leases is not its own
}

// Sweeper removes what unanswered requests of ended attempts have put, or may yet put. It puts the session key again;
// from then on no copy of an earlier put can be carried out, since each compares the old mod revision. Then it reads
// the entries in question, and removes what stands of them. There is one for each session, and nothing else moves the
// gate.
type Sweeper struct {
	host *lease.Host
	keys *Keys

	mu       sync.Mutex // protects what follows
	suspects map[*Suspect]bool
	running  bool
}

var (
	// errPutsInFlight: the sweeper must not put the session key yet.
	errPutsInFlight = retry.Again(errors.New("puts refused by the new session key are still in flight"))
	// errRemoved: something of it may stand yet.
	errRemoved = retry.Again(errors.New("another client, or a copy of the request, has removed what was found"))
)

// Add makes the sweeper responsible for an entry whose attempt has ended.
func (s *Sweeper) Add(e *Suspect) {
	s.mu.Lock()
	s.suspects[e] = true
	start := !s.running
	s.running = true
	s.mu.Unlock()
	if start {
		s.host.Go(s.run) // joined by Close; ends when there is no suspect
	}
}

func (s *Sweeper) run(ctx context.Context) {
	var pauses lease.Pauses
	logged := false
	for {
		suspects := s.suspectsLeft()
		if suspects == nil {
			return
		}
		err := s.sweep(ctx, suspects)
		if err == nil {
			pauses.Reset()
			continue
		}
		if ctx.Err() == nil && !etcderr.Retryable(err) && !logged && suspects[0].Lease.Lost() == nil {
			logged = true
			s.host.Logger.Error("holdfast: etcd refuses to remove entries, or to clean up after requests that it did not "+
				"answer; they may stand until the lease ends; the session retries", "entries", len(suspects),
				"lease", names.Lease(suspects[0].Lease.ID()), "error", err)
		}
		if pauses.Next(ctx, s.host.Env) != nil {
			return
		}
	}
}

// suspectsLeft returns the suspects whose lease is alive. It is one lease: a session has no next one before the last is
// lost. It returns nil if there is no suspect; then run must end.
func (s *Sweeper) suspectsLeft() (left []*Suspect) {
	for len(left) == 0 {
		s.mu.Lock()
		all := slices.Collect(maps.Keys(s.suspects))
		s.running = len(all) > 0
		s.mu.Unlock()
		if len(all) == 0 {
			return nil
		}
		for _, e := range all {
			if e.Lease.Lost() == nil {
				left = append(left, e)
			} else {
				s.clear([]*Suspect{e})
			}
		}
	}
	return left
}

// clear acquits suspects: nothing of them stands, and nothing can appear.
func (s *Sweeper) clear(suspects []*Suspect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range suspects {
		delete(s.suspects, e)
		s.keys.Unregister(e.Key)
	}
}

// sweep goes through all suspects once.
func (s *Sweeper) sweep(ctx context.Context, suspects []*Suspect) error {
	l := suspects[0].Lease
	ctx, cancel := lease.UntilLost(ctx, l)
	defer cancel()
	gateErr := s.moveGate(ctx, l, suspects)
	if gateErr != nil && !errors.Is(gateErr, rpctypes.ErrNoSpace) {
		return gateErr
	}
	// A full store refuses the put of the session key, but no deletion. So what stands is removed even then; what may yet
	// appear stays a suspect.
	keys := 0
	for _, e := range suspects {
		keys = max(keys, len(e.Keys))
	}
	for batch := range slices.Chunk(suspects, requests.MaxOps/keys) {
		if err := s.removeStanding(ctx, batch, gateErr == nil); err != nil {
			return err
		}
	}
	return gateErr
}

// moveGate puts the session key again, if otherwise an unanswered copy of a put could still be carried out.
func (s *Sweeper) moveGate(ctx context.Context, l *lease.Lease, suspects []*Suspect) error {
	gate := l.Gate()
	if !slices.ContainsFunc(suspects, func(e *Suspect) bool { return e.UnansweredAt >= gate }) {
		return nil
	}
	// A new gate makes etcd refuse all puts in flight. Their attempts read the gate, and send them again:
	//
	//	rev 10  the gate moves. A's put compares the gate before, and is refused
	//	rev 11  the gate moves again, before A's second put arrives, and so on: A could be refused for ever
	//
	// So the gate stays until each refused put has its place, or has ended.
	if slices.ContainsFunc(s.keys.Of(l, true), KeyUser.InFlight) {
		return errPutsInFlight
	}
	_, err := s.host.PutSessionKey(ctx, l)
	if etcderr.Classify(err) == etcderr.LeaseGone {
		s.host.LeaseGone(ctx, l, err)
	}
	s.keys.refuse(l) // perhaps: the put may have been carried out, whatever err is
	return err
}

// removeStanding removes what stands of a batch of suspects. With final, what is absent can no longer appear. If etcd
// refuses one of them, the others are still removed.
func (s *Sweeper) removeStanding(ctx context.Context, batch []*Suspect, final bool) error {
	err := s.removeTogether(ctx, batch, final)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case len(batch) == 1:
		return fmt.Errorf("entry %s: %w", names.Quote(batch[0].Key), err)
	}
	err = nil
	for i := range batch {
		err = cmp.Or(s.removeStanding(ctx, batch[i:i+1], final), err)
	}
	return err
}

// removeTogether reads the keys of some suspects by one request, and deletes what stands by another.
func (s *Sweeper) removeTogether(ctx context.Context, batch []*Suspect, final bool) error {
	var reads requests.Ops
	for _, e := range batch {
		for _, key := range e.Keys {
			if e.Attached {
				reads.Add(clientv3.OpGet(key)) // of a key alone, etcd 3.7 does not tell the lease
			} else {
				reads.Add(clientv3.OpGet(key, clientv3.WithKeysOnly()))
			}
		}
	}
	r, err := requests.ReadAll(ctx, s.host.Sender, reads...)
	if err != nil {
		return err
	}
	var remove requests.Txn
	n := 0
	for _, e := range batch {
		for range e.Keys { // after a deletion by hand the claim stands alone
			if kv := r.First(n); kv != nil && kv.CreateRevision != e.Kept && e.owns(kv) {
				remove.If = append(remove.If, clientv3.Compare(clientv3.CreateRevision(string(kv.Key)), "=", kv.CreateRevision))
				remove.Then = append(remove.Then, clientv3.OpDelete(string(kv.Key)))
			}
			n++
		}
	}
	if len(remove.Then) > 0 {
		if r, err = remove.Ask(ctx, s.host.Sender, requests.Write); err == nil && !r.Succeeded {
			err = errRemoved
		}
		if err != nil {
			return err
		}
	}
	if final {
		s.clear(batch)
	}
	return nil
}

// owns reports whether what stands may be removed:
//
//	rev 20  A has detached its entry; B sends an Attach, and gives up
//	rev 25  C attaches it: the entry is on C's leases, and B leaves it there
//	rev 25  or B's Attach was carried out after all: on B's leases none holds by the entry, and it goes
func (e *Suspect) owns(kv *mvccpb.KeyValue) bool {
	on := clientv3.LeaseID(kv.Lease)
	return !e.Attached || on == e.Lease.ID() || on == e.Lease.Claims
}

// New returns what a session needs, once. It does no I/O.
func New(host *lease.Host) (*Keys, *Sweeper) {
	keys := &Keys{inUse: make(map[string]use)}
	return keys, &Sweeper{host: host, keys: keys, suspects: make(map[*Suspect]bool)}
}

// maxFree bounds how many key endings a session keeps for later entries.
const maxFree = 1024

// Keys are the keys of a session's entries. A key belongs to one entry at a time. It is used again only when no request
// to put it can still be carried out: the entry of a late copy would look like the present one.
type Keys struct {
	mu    sync.Mutex     // protects what follows
	inUse map[string]use // by key: of attempts, and of the sweeper's suspects
	lease *lease.Lease   // whose endings free has
	free  []string       // endings to use again
}

// KeyUser is what uses a key.
type KeyUser interface {
	// InFlight reports whether the entry is about to be put: its attempt has neither its place nor ended.
	InFlight() bool
}

// use is by what a key is used.
type use struct {
	entry   KeyUser
	lease   *lease.Lease // of entry
	refused bool         // the session key was put again meanwhile
}

// NewID returns an ending for the key of an entry of a lease: a used one, if there is one.
func (k *Keys) NewID(lease *lease.Lease) string {
	k.mu.Lock()
	if k.lease != lease {
		k.lease, k.free = lease, nil
	}
	// etcd remembers a deleted key until it compacts its history, and every read of a prefix visits the remembered keys
	// below it. With a new key for each acquisition, a put would take longer the more often a lock was used.
	id := ""
	if last := len(k.free) - 1; last >= 0 {
		id, k.free = k.free[last], k.free[:last]
	}
	k.mu.Unlock()
	if id == "" {
		id = layout.NewID(lease.ID())
	}
	return id
}

// Register gives a key to e, an entry of a lease. It reports false if the key is in use: by another attempt, by the
// sweeper.
func (k *Keys) Register(key string, lease *lease.Lease, e KeyUser) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inUse[key].entry != nil {
		return false
	}
	k.inUse[key] = use{entry: e, lease: lease}
	return true
}

// Unregister forgets the entry at a key. The key isn't used again.
func (k *Keys) Unregister(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inUse, key)
}

// Recycle forgets the entry at a key, and keeps its ending, id, for a later entry of the same lease; unless id is
// empty.
func (k *Keys) Recycle(key, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	lease := k.inUse[key].lease
	delete(k.inUse, key)
	if k.lease == lease && id != "" && len(k.free) < maxFree {
		k.free = append(k.free, id)
	}
}

// Of returns the entries of a lease: those whose puts may have been refused, or all.
func (k *Keys) Of(lease *lease.Lease, onlyRefused bool) (entries []KeyUser) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, u := range k.inUse {
		if u.lease == lease && (u.refused || !onlyRefused) {
			entries = append(entries, u.entry)
		}
	}
	return entries
}

// refuse records a put of the session key: it may have refused the puts of all entries of a lease.
func (k *Keys) refuse(lease *lease.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, u := range k.inUse {
		if u.lease == lease {
			u.refused = true
			k.inUse[key] = u
		}
	}
}

// Forget unregisters all entries of a lost lease.
func (k *Keys) Forget(lease *lease.Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.inUse, func(_ string, u use) bool { return u.lease == lease })
}

// InUse returns how many keys are in use, for tests.
func (k *Keys) InUse() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.inUse)
}
