package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// sweeper removes what unanswered requests of ended attempts have put, or may yet put. It puts the session key again;
// from then on no copy of an earlier put can be carried out, since each compares that key's mod revision. Then it reads
// the entries in question and removes those that exist.
//
// There is one for each session, and nothing else moves the gate. A new gate makes etcd refuse all puts in flight,
// which then learn the gate and are sent again. If the gate moved again before that, they could be refused for ever. So
// the next put of the key waits until all of them have their place or have ended.
type sweeper struct {
	host lease.Host
	keys *keys

	mu       sync.Mutex      // protects what follows
	suspects map[*entry]bool // entries that may stand or appear although their attempts have ended
	running  bool
}

// errPutsInFlight: the sweeper must not put the session key yet.
var errPutsInFlight = backoff.Again(errors.New("puts refused by the new session key are still in flight"))

// add makes the sweeper responsible for an entry whose attempt has ended.
func (s *sweeper) add(e *entry) {
	s.mu.Lock()
	s.suspects[e] = true
	start := !s.running
	s.running = true
	s.mu.Unlock()
	if start {
		s.host.Go(s.run) // joined by Close; ends when there is no suspect
	}
}

func (s *sweeper) run(ctx context.Context) {
	var pauses calls.Pauses
	logged := false
	for {
		suspects := s.suspectsLeft()
		if suspects == nil || ctx.Err() != nil {
			return
		}
		err := s.sweep(ctx, suspects)
		if err == nil {
			pauses.Reset()
			continue
		}
		if ctx.Err() == nil && !etcderr.Retryable(err) && !logged {
			logged = true
			suspects[0].log().Error("holdfast: etcd refuses to clean up after requests that it did not answer; "+
				"their entries may stand until the lease ends", "entries", len(suspects), "error", err)
		}
		if pauses.Next(ctx, s.host, nil) != nil {
			return
		}
	}
}

// suspectsLeft returns the suspects whose leases are alive. It returns nil if there is none; then run must end.
func (s *sweeper) suspectsLeft() []*entry {
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
			if e.of.lease.Lost() != nil {
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
func (s *sweeper) clear(e *entry) {
	s.mu.Lock()
	delete(s.suspects, e)
	s.mu.Unlock()
	s.keys.unregister(e)
}

// sweep goes through all suspects once.
func (s *sweeper) sweep(ctx context.Context, suspects []*entry) error {
	lease := suspects[0].of.lease
	ctx, cancel := calls.UntilLost(ctx, lease)
	defer cancel()
	gateErr := s.moveGate(ctx, lease, suspects)
	if gateErr != nil && !errors.Is(gateErr, rpctypes.ErrNoSpace) {
		return gateErr
	}
	// A full store refuses the put of the session key, but no deletion. So what
	// stands is removed even then; what may yet appear stays a suspect.
	for batch := range slices.Chunk(suspects, txns.MaxOps) {
		if err := s.removeStanding(ctx, batch, gateErr == nil); err != nil {
			return err
		}
	}
	return gateErr
}

// moveGate puts the session key again, if otherwise an unanswered copy of a put
// could still be carried out.
func (s *sweeper) moveGate(ctx context.Context, lease *lease.Lease, suspects []*entry) error {
	gate := lease.Gate()
	if !slices.ContainsFunc(suspects, func(e *entry) bool { return e.of.lease == lease && e.of.unansweredAt >= gate }) {
		return nil
	}
	if slices.ContainsFunc(s.keys.of(lease), func(e *entry) bool { return e.refused && e.putInFlight() }) {
		return errPutsInFlight
	}
	_, err := s.host.PutSessionKey(ctx, lease)
	if etcderr.Classify(err) == etcderr.LeaseGone {
		s.host.LeaseGone(ctx, lease, err)
	}
	for _, e := range s.keys.of(lease) {
		e.refused = true // perhaps: the put may have been carried out, whatever err is
	}
	return err
}

// putInFlight reports whether the entry is about to be put: its attempt has neither
// its place nor ended.
func (e *entry) putInFlight() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stage < created
}

// removeStanding reads a batch of suspects and removes those that exist. With final, those that are absent can no
// longer appear. If etcd refuses to read one of them, the others are still removed.
func (s *sweeper) removeStanding(ctx context.Context, batch []*entry, final bool) (refused error) {
	ops := make([]clientv3.Op, len(batch))
	for i, e := range batch {
		ops[i] = reads.Meta(e.key)
	}
	resp, err := txns.Read(ctx, batch[0].q.host.Sender(), ops...)
	switch {
	case err == nil:
	case len(batch) == 1 || ctx.Err() != nil || etcderr.Retryable(err):
		return err
	default:
		for i := range batch {
			if err := s.removeStanding(ctx, batch[i:i+1], final); err != nil {
				refused = err
			}
		}
		return refused
	}
	for i, e := range batch {
		switch kv := resp.First(i); {
		case e.taken.moved && reads.IsEntry(kv, e.rev): // MinHold keeps it
			if final {
				s.clear(e)
			}
		case kv != nil:
			s.remove(e, kv.CreateRevision)
		case final:
			s.clear(e)
		}
	}
	return nil
}

// remove removes an entry that exists, as an attempt does that gives up: after a lock delay, if one is due.
func (s *sweeper) remove(e *entry, rev int64) {
	s.clear(e)
	found := &entry{q: e.q, of: e.of, id: e.id, rev: rev, stage: created}
	found.wait.e = found
	s.keys.register(found, e.key)                                               // beforeRevoke removes it, too
	s.host.Go(func(context.Context) { _ = found.remove(e.of.lease.Context()) }) // ends with the lease
}
