package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/front"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/watching"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// Leader describes a leader. The zero Leader: no candidate leads. Compare terms by Token.
type Leader struct {
	// Token is the Term's. It lacks the epoch if that was raised since the leader queued.
	Token holdfast.Token `json:",omitzero"`

	Value    string           // Options.Value, or what Proclaim was given since then
	Key      string           // of its entry in etcd
	Lease    clientv3.LeaseID // of its entry; 0 for an entry without one, of another client
	Revision int64            // etcd's revision at which the entry was last written

	// For people. Zero for a candidate of etcd's own clients. Times are UTC, in
	// milliseconds, by the clock of the leader's machine.
	Owner  string    // session.Options.Owner of its session
	Host   string    // machine name
	PID    int       // process ID
	Queued time.Time // when it queued
	Since  time.Time // when its term began; zero until about a second after that
}

func leaderOf(f front.Front) Leader {
	if f.Entry == nil {
		return Leader{}
	}
	return Leader{
		Token:    f.Token,
		Value:    f.Value.Data,
		Key:      string(f.Entry.Key),
		Lease:    clientv3.LeaseID(f.Entry.Lease),
		Revision: f.Entry.ModRevision,
		Owner:    f.Value.Owner,
		Host:     f.Value.Host,
		PID:      f.Value.PID,
		Queued:   f.Value.Queued,
		Since:    f.Value.Held,
	}
}

// equalForObservers reports whether nothing has changed for observers since before. Since may be known now, and an
// administrator may have asked the leader to resign.
func (l Leader) equalForObservers(before Leader) bool {
	if before.Since.IsZero() {
		before.Since = l.Since
	}
	before.Revision = l.Revision
	return l == before
}

// Reader reads and watches who leads, without a session and without writing: its role needs to read NAMESPACE/election/
// and NAMESPACE/epoch; for a prefix PREFIX/, NAMESPACE/claim/PREFIX/ and NAMESPACE/epoch. While a candidate waits for
// the lock delay after a lost leader, no candidate leads. It is immutable, does no I/O when made, and may be
// used by any number of goroutines.
type Reader struct {
	client   *clientv3.Client
	name     string
	isPrefix bool // name is a prefix, as for NewAt

	front  *front.Monitor // nil only if err is not
	maxAge time.Duration
	err    error // why the reader cannot be used
}

// ReaderOptions are the policies of a Reader.
type ReaderOptions = view.ReaderOptions

// NewReader returns a reader of the election of New in the default namespace. A bad name, option or client is
// an error of the first call. Close the client after the reader's observers.
func NewReader(cli *clientv3.Client, name string) *Reader {
	return (&Reader{client: cli, name: name}).With(ReaderOptions{})
}

// NewReaderAt returns a reader of the election of NewAt. After a
// lost leader, a follower hears of the next leader up to a third of MaxAge late. With a role for the prefix alone, the
// follower is told of the next candidate at the loss already.
func NewReaderAt(cli *clientv3.Client, prefix string) *Reader {
	return (&Reader{client: cli, name: prefix, isPrefix: true}).With(ReaderOptions{})
}

// With returns a copy with these options, in place of those it had.
func (r *Reader) With(o ReaderOptions) *Reader {
	if o.Clock == nil {
		o.Clock = session.SystemClock()
	}
	opts, err := watching.Options{Retry: o.Retry, MaxAge: o.MaxAge, Clock: o.Clock}.Resolve(r.client)
	namespace, bad := names.Namespace(o.Namespace)
	at := layout.Named(namespace, holdfast.KindElection, r.name)
	if r.isPrefix {
		at = layout.At(namespace, holdfast.KindElection, r.name)
	}
	with := &Reader{client: r.client, name: r.name, isPrefix: r.isPrefix, maxAge: opts.MaxAge}
	if with.err = errors.Join(err, bad, at.Check()); with.err == nil {
		with.front = front.New(r.client, at, namespace, opts.Retry, o.Clock)
	}
	return with
}

// reader returns the reader behind Leader, Watch and Observer of an Election.
func (e *Election) reader() *Reader {
	maxAge := cmp.Or(e.opts.MaxAge, watching.DefaultMaxAge)
	r := &Reader{name: e.Name(), front: e.front, maxAge: maxAge, err: e.opts.validate()}
	if r.err == nil {
		r.err = e.queue.Err()
	}
	return r
}

// Leader is Reader.Leader on the session's client; holdfast.ErrClosed when the session is closed.
func (e *Election) Leader(ctx context.Context) (Leader, error) { return e.reader().Leader(ctx) }

// Watch is Reader.Watch on the session's client. It ends with holdfast.ErrClosed when the session is closed.
func (e *Election) Watch(ctx context.Context) iter.Seq2[Leader, error] { return e.reader().Watch(ctx) }

// Observer is Reader.Observer on the session's client. It ends with holdfast.ErrClosed when the session is closed.
func (e *Election) Observer(ctx context.Context) (*Observer, error) { return e.reader().Observer(ctx) }

// Name is the name or prefix given to NewReader or NewReaderAt.
func (r *Reader) Name() string { return r.name }

// Leader asks etcd who leads, with one linearizable read, and retries until ctx ends.
//
// errors.Is targets: ErrNoLeader; ctx's error, joined with that of the last attempt; holdfast.ErrClientClosed; etcd's
// error where a retry cannot help. A *holdfast.NameError or *holdfast.ArgumentError comes before anything is sent.
func (r *Reader) Leader(ctx context.Context) (Leader, error) {
	if err := r.validate(ctx); err != nil {
		return Leader{}, err
	}
	f, err := r.front.Read(ctx)
	if err != nil {
		return Leader{}, fmt.Errorf("leader of election %s: %w", names.Quote(r.name), err)
	}
	if f.Entry == nil {
		return Leader{}, fmt.Errorf("election %s: %w", names.Quote(r.name), ErrNoLeader)
	}
	return leaderOf(f), nil
}

// Watch ranges over the leaders: the present one, then each change of the leader or its value, in etcd's order. The
// zero Leader: no candidate leads. A slow consumer misses changes, but not the latest; failures of etcd only
// delay them.
//
//	for leader, err := range r.Watch(ctx) {
//		if err != nil {
//			return err // one of Leader's, without ErrNoLeader; the range has ended
//		}
//		…
//	}
//
// Each range has a watch, and reads at each change of the leader and each third of MaxAge.
func (r *Reader) Watch(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := r.validate(ctx); err != nil {
			yield(Leader{}, err)
			return
		}
		same := func(before, now Leader) bool { return now.equalForObservers(before) }
		err := watching.Each(ctx, r.follow, same, func(l Leader) bool { return yield(l, nil) })
		if err != nil {
			yield(Leader{}, err)
		}
	}
}

// Observer starts an observer. Close it after use. The errors are those of Leader, without ErrNoLeader.
func (r *Reader) Observer(ctx context.Context) (*Observer, error) {
	if err := r.validate(ctx); err != nil {
		return nil, err
	}
	of, err := watching.Observe(ctx, r.follow, r.front.Clock(), r.maxAge)
	if err != nil {
		return nil, fmt.Errorf("observe election %s: %w", names.Quote(r.name), err)
	}
	return &Observer{of}, nil
}

// Observer keeps the current leader in memory: see [view.Observed].
type Observer struct{ of *watching.Observer[Leader] }

// Snapshot is what an Observer knows.
type Snapshot struct {
	Leader Leader // the zero Leader if no candidate leads. The watch may have updated its Value since the read
	view.Observed
}

// Current returns what the observer knows now.
func (o *Observer) Current() Snapshot {
	now := o.of.Current()
	return Snapshot{now.Value, now.Observed}
}

// Close ends the observer.
func (o *Observer) Close() { o.of.Close() }

// validate returns why a call cannot be made, or nil.
func (r *Reader) validate(ctx context.Context) error {
	switch {
	case r.err != nil:
		return r.err
	case r.front == nil:
		return &holdfast.ArgumentError{Argument: "Reader", Reason: "is the zero value: make it with NewReader or NewReaderAt"}
	case ctx == nil:
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	default:
		return nil
	}
}

// follow calls tell with each leader, until ctx ends.
func (r *Reader) follow(ctx context.Context, tell func(watching.Dated[Leader])) error {
	return r.front.Follow(ctx, r.maxAge/3, func(f front.Front) {
		tell(watching.Dated[Leader]{Value: leaderOf(f), Sent: f.Sent})
	})
}
