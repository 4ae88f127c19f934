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
	"github.com/holdfast-go/holdfast/internal/lease"
)

// sweepBatch is how many entries the sweeper reads in one Txn.
const sweepBatch = 100

// sweeper removes what ended attempts may have left in etcd. It puts the session
// key again, and from then on no copy of a put that was sent before can be
// carried out, as each compares that key's mod revision. Then it reads the
// entries in question, and removes those that stand.
//
// There is one for each session, and it alone puts the session key again to shut
// out late copies: a put of it refuses the session's other attempts that are
// under way, too. They learn the new gate and are sent again. So that they are
// not refused for ever, the next put waits until all of them are through.
type sweeper struct {
	sess lease.Host

	mu        sync.Mutex      // protects what follows
	questions map[*entry]bool // entries that may stand or appear although their attempts are over
	running   bool
	waiting   map[*entry]bool // attempts that are being put
	refused   map[*entry]bool // those of them that the last put of the session key may have refused
	through   chan struct{}   // closed when refused becomes empty; nil unless the sweeper waits
}

// enqueuing notes that e is being put, until through is called.
func (s *sweeper) enqueuing(e *entry) (through func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = make(map[*entry]bool)
	}
	s.waiting[e] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, e)
		delete(s.refused, e)
		if len(s.refused) == 0 && s.through != nil {
			close(s.through)
			s.through = nil
		}
	}
}

// add has the sweeper take care of an entry whose attempt is over.
func (s *sweeper) add(e *entry) {
	s.mu.Lock()
	if s.questions == nil {
		s.questions = make(map[*entry]bool)
	}
	s.questions[e] = true
	start := !s.running
	s.running = true
	s.mu.Unlock()
	if start {
		s.sess.Go(s.run) // joined by Close; ends when nothing is in question
	}
}

func (s *sweeper) run(ctx context.Context) {
	pauses, err := s.sess.RetryPolicy().New()
	if err != nil {
		return // the session has validated it
	}
	for told := false; ; {
		open := s.open()
		if open == nil {
			return
		}
		if ctx.Err() != nil {
			return
		}
		err := s.sweep(ctx, open)
		if err != nil && ctx.Err() == nil && !etcderr.Retryable(err) && !told {
			told = true
			s.sess.Logger().Error("holdfast: etcd refuses to clean up after requests that it did not answer; their entries may stand until it does or the lease ends",
				"session_key", s.sess.SessionKey(open[0].lease.ID()), "entries", len(open), "key", open[0].key, "error", err)
		}
		if err == nil {
			pauses.Reset()
		} else if !sleep(ctx, pauses.NextBackOff()) {
			return
		}
	}
}

// open returns what is in question. What went with its lease is not.
func (s *sweeper) open() []*entry {
	for {
		s.mu.Lock()
		if len(s.questions) == 0 {
			s.running = false
			s.mu.Unlock()
			return nil
		}
		all := slices.Collect(maps.Keys(s.questions))
		s.mu.Unlock()
		open := all[:0]
		for _, e := range all {
			if e.lease.Lost() != nil {
				s.answered(e)
				e.q.local.keys.unregister(e)
			} else {
				open = append(open, e)
			}
		}
		if len(open) > 0 {
			return open
		}
	}
}

// answered notes that an entry is no longer in question.
func (s *sweeper) answered(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.questions, e)
}

// sweep goes through all that is in question once.
func (s *sweeper) sweep(ctx context.Context, open []*entry) error {
	lease := open[0].lease
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(lease.Context(), cancel)()
	shut := s.shut(ctx, lease, open)
	if shut != nil && !storeFull(shut) {
		return shut
	}
	for batch := range slices.Chunk(open, sweepBatch) {
		if err := s.look(ctx, batch, shut == nil); err != nil {
			return err
		}
	}
	return shut
}

// storeFull reports whether etcd has refused a request for lack of space. The
// sweeper still deletes then, and puts the session key when there is room.
func storeFull(err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) }

// shut puts the session key, unless no copy that was not answered could pass it
// any more.
func (s *sweeper) shut(ctx context.Context, lease *lease.Lease, open []*entry) error {
	gate := lease.Gate()
	if !slices.ContainsFunc(open, func(e *entry) bool { return e.lease == lease && e.openAt >= gate }) {
		return nil
	}
	if err := s.awaitThrough(ctx); err != nil {
		return err
	}
	_, err := s.sess.PutSessionKey(ctx, lease)
	if etcderr.Classify(err) == etcderr.LeaseGone {
		s.sess.LeaseGone(ctx, lease, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = maps.Clone(s.waiting) // it may have been carried out, whatever err is
	return err
}

// awaitThrough waits until every attempt that the last put refused has its place
// or has ended.
func (s *sweeper) awaitThrough(ctx context.Context) error {
	s.mu.Lock()
	if len(s.refused) == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.through == nil {
		s.through = make(chan struct{})
	}
	through := s.through
	s.mu.Unlock()
	select {
	case <-through:
		return nil
	case <-ctx.Done():
		return backoff.ContextErr(ctx)
	}
}

// look reads a batch of entries and removes those that stand. What etcd refuses
// about one of them does not keep the others from being removed. final: none that
// is absent can appear any more.
func (s *sweeper) look(ctx context.Context, batch []*entry, final bool) (refused error) {
	ops := make([]clientv3.Op, len(batch))
	for i, e := range batch {
		ops[i] = clientv3.OpGet(e.key, clientv3.WithKeysOnly())
	}
	resp, err := batch[0].q.read(ctx, ops...)
	switch {
	case err == nil:
	case len(batch) == 1 || ctx.Err() != nil || etcderr.Retryable(err):
		return err
	default:
		for i := range batch {
			if err := s.look(ctx, batch[i:i+1], final); err != nil {
				refused = err
			}
		}
		return refused
	}
	for i, e := range batch {
		switch kv := rangeAt(resp, i); {
		case kv != nil:
			s.remove(e, kv.CreateRevision)
		case final:
			s.answered(e)
			e.q.local.keys.unregister(e)
		}
	}
	return nil
}

// remove removes an entry that was found to stand: like an attempt that a read
// has found, and that gives up. That waits for a lock delay where it has to.
func (s *sweeper) remove(e *entry, rev int64) {
	s.answered(e)
	found := &entry{q: e.q, lease: e.lease, id: e.id, key: e.key, openAt: e.openAt, rev: rev, stage: created}
	e.q.local.keys.unregister(e)
	e.q.local.keys.register(found)                                           // Close takes it out as well
	s.sess.Go(func(context.Context) { _ = found.remove(e.lease.Context()) }) // ends with the lease
}
