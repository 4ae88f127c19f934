package election

import (
	"context"
	"fmt"
	"iter"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

// Leader is who leads. The zero Leader, whose Token is zero, says that nobody
// does. Leaders can be compared with ==.
type Leader struct {
	// Token is that of the leader's Term, by which terms can be told apart.
	// For a leader who was elected before the epoch was last bumped, and so
	// long ago that etcd's history is compacted, it lacks the epoch.
	Token fencing.Token

	Value    string           // what it campaigned with or has proclaimed since
	Key      string           // of its entry in etcd
	Lease    clientv3.LeaseID // of its entry; 0: a foreign entry without one
	Revision int64            // etcd's revision at which Value was put
}

func leaderOf(s queue.Sighting) Leader {
	if s.Entry == nil {
		return Leader{}
	}
	return Leader{
		Token:    s.Token,
		Value:    string(s.Entry.Value),
		Key:      string(s.Entry.Key),
		Lease:    clientv3.LeaseID(s.Entry.Lease),
		Revision: s.Entry.ModRevision,
	}
}

// Leader asks etcd who leads: one linearizable read. That it was so when etcd
// answered does not mean that it still is. Give it a context that ends: with
// etcd out of reach it goes on trying until then, or until the session is closed.
//
// errors.Is targets: ErrNoLeader when nobody leads; session.ErrClosed; the
// context's error, with what the last attempt met. *session.NameError and
// *session.ArgumentError come before anything is sent.
//
// To ask often, or to be told, use an Observer or Observe.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := e.opts.check(); err != nil {
		return Leader{}, err
	}
	s, err := e.queue.Holder(ctx)
	if err != nil {
		return Leader{}, fmt.Errorf("leader of election %s: %w", session.Quote(e.Name()), err)
	}
	if s.Entry == nil {
		return Leader{}, fmt.Errorf("election %s: %w", session.Quote(e.Name()), ErrNoLeader)
	}
	return leaderOf(s), nil
}

// Observe ranges over who leads: first as it is, then at each change of leader
// or of its value, in the order of etcd's history. That nobody leads is told as
// well, by the zero Leader. A consumer that is slow gets the latest and misses
// what came in between. Compaction of etcd's history, changes of etcd's leader
// and disconnections are survived without a word; changes are then told late.
//
//	for leader, err := range el.Observe(ctx) {
//		if err != nil {
//			return err // it has ended: ctx, the session, or etcd refuses
//		}
//		…
//	}
//
// The sequence ends with an error and never without one, unless the loop is
// left: the context's error when ctx ends; session.ErrClosed; a
// *session.NameError or *session.ArgumentError; or what etcd said that no retry
// can mend, such as that reading is not permitted. The Leader beside an error
// is zero and says nothing.
//
// What is told may be over when it arrives. Each range is an observation of its
// own: one watch on the session's stream, and a read at each change of leader
// and every third of Options.MaxAge. Its goroutine ends with the loop.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := e.observable(ctx); err != nil {
			yield(Leader{}, err)
			return
		}
		var told *Leader
		err := e.follow(ctx, func(s queue.Sighting) bool {
			l := leaderOf(s)
			if told != nil && *told == l {
				return true
			}
			told = &l
			return yield(l, nil)
		})
		if err != nil {
			yield(Leader{}, err)
		}
	}
}

func (e *Election) observable(ctx context.Context) error {
	if err := e.opts.check(); err != nil {
		return err
	}
	return e.usable(ctx)
}

// follow calls tell with the latest sighting, on the caller's goroutine, until
// tell returns false (nil) or following ends (its error). tell may take its
// time: sightings do not queue up, the latest replaces the one before.
func (e *Election) follow(ctx context.Context, tell func(queue.Sighting) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	latest := make(chan queue.Sighting, 1)
	ended := make(chan error, 1)
	go func() { // joined below
		ended <- e.queue.Follow(ctx, e.opts.refresh(), func(s queue.Sighting) {
			select {
			case <-latest:
			default:
			}
			latest <- s // there is room: nobody else sends
		})
		close(ended)
	}()
	// Deferred, so that it is joined also when tell panics.
	defer func() {
		cancel()
		for range ended {
		}
	}()
	for {
		select {
		case s := <-latest:
			if !tell(s) {
				return nil
			}
		case err := <-ended:
			return err
		}
	}
}
