package leftovers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Suspect is an entry of an ended attempt. It may stand, or appear.
type Suspect struct {
	Key          string       // Keys knows the entry by it
	Keys         []string     // where it may stand, at one at most; each is followed by the key of its claim
	Lease        *lease.Lease // of the entry
	UnansweredAt int64        // the gate of the latest unanswered copy of the put; 0 if all were answered
	Kept         int64        // the create revision of the entry if MinHold keeps it at its key; otherwise 0
	Log          *slog.Logger // the session's, with what identifies the entry

	// Remove has the session remove what was found, an entry or its claim, by its create revision. The sweeper has
	// unregistered the Suspect before.
	Remove func(kv *mvccpb.KeyValue)
}

// InFlight is false: the attempt has ended.
func (*Suspect) InFlight() bool { return false }

// Sweeper removes what unanswered requests of ended attempts have put, or may yet put. It puts the session key again;
// from then on no copy of an earlier put can be carried out, since each compares the old mod revision. Then it reads
// the entries in question, and removes what stands of them. There is one for each session, and nothing else moves the
// gate.
type Sweeper struct {
	host lease.Host
	keys *Keys

	mu       sync.Mutex // protects what follows
	suspects map[*Suspect]bool
	running  bool
}

// errPutsInFlight: the sweeper must not put the session key yet.
var errPutsInFlight = retry.Again(errors.New("puts refused by the new session key are still in flight"))

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
			suspects[0].Log.Error("holdfast: etcd refuses to clean up after requests that it did not answer; "+
				"their entries may stand until the lease ends", "entries", len(suspects), "error", err)
		}
		if pauses.Next(ctx, s.host, nil) != nil {
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
		left = slices.DeleteFunc(all, func(e *Suspect) bool {
			lost := e.Lease.Lost() != nil
			if lost {
				s.clear(e)
			}
			return lost
		})
	}
	return left
}

// clear acquits a suspect: nothing of it stands, and nothing can appear.
func (s *Sweeper) clear(e *Suspect) {
	s.mu.Lock()
	delete(s.suspects, e)
	s.mu.Unlock()
	s.keys.Unregister(e.Key)
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
	if slices.ContainsFunc(s.keys.Of(l, true), Entry.InFlight) {
		return errPutsInFlight
	}
	_, err := s.host.PutSessionKey(ctx, l)
	if etcderr.Classify(err) == etcderr.LeaseGone {
		s.host.LeaseGone(ctx, l, err)
	}
	s.keys.refuse(l) // perhaps: the put may have been carried out, whatever err is
	return err
}

// removeStanding reads a batch of suspects and removes what stands. With final, what is absent can no longer appear. If
// etcd refuses to read one of them, the others are still removed.
func (s *Sweeper) removeStanding(ctx context.Context, batch []*Suspect, final bool) (refused error) {
	var ops requests.Ops
	for _, e := range batch {
		for _, key := range e.Keys {
			ops.Add(clientv3.OpGet(key, clientv3.WithKeysOnly()))
		}
	}
	resp, err := requests.ReadAll(ctx, s.host.Sender(), ops...)
	switch {
	case err == nil:
	case len(batch) == 1 || ctx.Err() != nil:
		return err
	default:
		for i := range batch {
			if err := s.removeStanding(ctx, batch[i:i+1], final); err != nil {
				refused = err
			}
		}
		return refused
	}
	n := 0
	for _, e := range batch {
		var kv *mvccpb.KeyValue
		for range e.Keys { // after a deletion by hand the claim stands alone
			kv = cmp.Or(kv, resp.First(n))
			n++
		}
		switch {
		case kv != nil && kv.CreateRevision == e.Kept:
			if final {
				s.clear(e)
			}
		case kv != nil:
			s.clear(e)
			e.Remove(kv)
		case final:
			s.clear(e)
		}
	}
	return nil
}
