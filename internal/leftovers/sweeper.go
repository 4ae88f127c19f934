package leftovers

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Sweeper removes what unanswered requests of ended attempts have put, or may yet put. It puts the session key again;
// from then on no copy of an earlier put can be carried out, since each compares that key's mod revision. Then it reads
// the entries in question and removes those that exist.
//
// There is one for each session, and nothing else moves the gate. A new gate makes etcd refuse all puts in flight,
// which then learn the gate and are sent again. If the gate moved again before that, they could be refused for ever. So
// the next put of the key waits until all of them have their place or have ended.
type Sweeper struct {
	host lease.Host
	keys *Keys

	mu       sync.Mutex // protects what follows
	suspects map[Suspect]bool
	running  bool
}

// errPutsInFlight: the sweeper must not put the session key yet.
var errPutsInFlight = retry.Again(errors.New("puts refused by the new session key are still in flight"))

// Add makes the sweeper responsible for an entry whose attempt has ended.
func (s *Sweeper) Add(e Suspect) {
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
		if ctx.Err() == nil && !etcderr.Retryable(err) && !logged && suspects[0].Lease().Lost() == nil {
			logged = true
			suspects[0].Log().Error("holdfast: etcd refuses to clean up after requests that it did not answer; "+
				"their entries may stand until the lease ends", "entries", len(suspects), "error", err)
		}
		if pauses.Next(ctx, s.host, nil) != nil {
			return
		}
	}
}

// suspectsLeft returns the suspects whose lease is alive. It is one lease: a session has no next one before the last is
// lost. It returns nil if there is no suspect; then run must end.
func (s *Sweeper) suspectsLeft() []Suspect {
	for {
		s.mu.Lock()
		if len(s.suspects) == 0 {
			s.running = false
			s.mu.Unlock()
			return nil
		}
		all := slices.Collect(maps.Keys(s.suspects))
		s.mu.Unlock()
		left := all[:0]
		for _, e := range all {
			if e.Lease().Lost() != nil {
				s.clear(e)
			} else {
				left = append(left, e)
			}
		}
		if len(left) > 0 {
			return left
		}
	}
}

// clear acquits a suspect: nothing of it stands, and nothing can appear.
func (s *Sweeper) clear(e Suspect) {
	s.mu.Lock()
	delete(s.suspects, e)
	s.mu.Unlock()
	s.keys.Unregister(e.Key())
}

// sweep goes through all suspects once.
func (s *Sweeper) sweep(ctx context.Context, suspects []Suspect) error {
	l := suspects[0].Lease()
	ctx, cancel := lease.UntilLost(ctx, l)
	defer cancel()
	gateErr := s.moveGate(ctx, l, suspects)
	if gateErr != nil && !errors.Is(gateErr, rpctypes.ErrNoSpace) {
		return gateErr
	}
	// A full store refuses the put of the session key, but no deletion. So what
	// stands is removed even then; what may yet appear stays a suspect.
	keys := 0
	for _, e := range suspects {
		keys = max(keys, len(e.Keys()))
	}
	for batch := range slices.Chunk(suspects, requests.MaxOps/keys) {
		if err := s.removeStanding(ctx, batch, gateErr == nil); err != nil {
			return err
		}
	}
	return gateErr
}

// moveGate puts the session key again, if otherwise an unanswered copy of a put
// could still be carried out.
func (s *Sweeper) moveGate(ctx context.Context, l *lease.Lease, suspects []Suspect) error {
	gate := l.Gate()
	if !slices.ContainsFunc(suspects, func(e Suspect) bool { return e.UnansweredAt() >= gate }) {
		return nil
	}
	if slices.ContainsFunc(s.keys.of(l, true), Entry.InFlight) {
		return errPutsInFlight
	}
	_, err := s.host.PutSessionKey(ctx, l)
	if etcderr.Classify(err) == etcderr.LeaseGone {
		s.host.LeaseGone(ctx, l, clientv3.NoLease, err)
	}
	s.keys.refuse(l) // perhaps: the put may have been carried out, whatever err is
	return err
}

// removeStanding reads a batch of suspects and removes those that exist. With final, those that are absent can no
// longer appear. If etcd refuses to read one of them, the others are still removed.
func (s *Sweeper) removeStanding(ctx context.Context, batch []Suspect, final bool) (refused error) {
	var ops requests.Ops
	for _, e := range batch {
		for _, key := range e.Keys() {
			ops.Add(ahead.Meta(key))
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
		for range e.Keys() { // an entry that was deleted by hand has left its claim
			kv = cmp.Or(kv, resp.First(n))
			n++
		}
		switch {
		case ahead.IsEntry(kv, e.Kept()):
			if final {
				s.clear(e)
			}
		case kv != nil:
			s.clear(e)
			e.RemoveFound(kv)
		case final:
			s.clear(e)
		}
	}
	return nil
}
