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
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/front"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/watching"
	"github.com/holdfast-go/holdfast/session"
)

// Reader reads and watches who leads, without a session and without writing: its role needs to read NAMESPACE/election/
// and NAMESPACE/epoch; for a prefix PREFIX/, NAMESPACE/claim/PREFIX/ and NAMESPACE/epoch. While a candidate waits for
// the lock delay after a leader that was lost, no candidate leads. It is immutable, does no I/O when made, and may be
// used by any number of goroutines.
type Reader struct {
	client   *clientv3.Client
	name     string
	isPrefix bool // name is a prefix, as for NewAt

	front  *front.Reader // nil only if err is not
	opts   ReaderOptions // as they were set
	maxAge time.Duration
	spawn  func(f func()) bool // runs f on a goroutine of the session; false: it is closed. nil: no session
	err    error               // why the reader cannot be used
}

// ReaderOptions are the policies of a Reader. The zero value of each field is its default. A value out of range is a
// *holdfast.ArgumentError or *holdfast.NameError of the first call.
type ReaderOptions struct {
	// Namespace is that of the candidates' sessions, default "holdfast".
	Namespace string

	// MaxAge is as in Options. Default 15 s; at least 30 ms.
	MaxAge time.Duration

	// Retry sets the pauses between attempts; its Attempt bounds how long a watch may take to begin: default
	// 4 s, less than 5 s.
	Retry backoff.Policy

	// Clock is elapsed time; default session.SystemClock(). For tests.
	Clock func() time.Duration
}

// validate returns the retry policy with its defaults.
func (o ReaderOptions) validate() (backoff.Policy, error) {
	if o.MaxAge != 0 && o.MaxAge < watching.MinMaxAge {
		return o.Retry, &holdfast.ArgumentError{Argument: "ReaderOptions.MaxAge", Reason: "is less than 30 ms"}
	}
	return requests.Policy("ReaderOptions.Retry", o.Retry)
}

// NewReader returns a reader of the election that New names in the default namespace. A bad name, option or client is
// an error of the first call. Close the client after the reader's observers.
func NewReader(cli *clientv3.Client, name string) *Reader {
	return (&Reader{client: cli, name: name}).With(ReaderOptions{})
}

// NewReaderAt returns a reader of the election that NewAt names. Nothing warns of a prefix that ends in "/". A follower
// hears up to half a second late that a candidate leads after a leader that was lost. With a role that may read the
// prefix alone, that one is named at the loss already.
func NewReaderAt(cli *clientv3.Client, prefix string) *Reader {
	return (&Reader{client: cli, name: prefix, isPrefix: true}).With(ReaderOptions{})
}

// With returns a copy with the options that o sets; the others stay. To set one back, begin with NewReader.
func (r *Reader) With(o ReaderOptions) *Reader {
	o = options.Over(r.opts, o)
	with := &Reader{
		client: r.client, name: r.name, isPrefix: r.isPrefix, opts: o, maxAge: cmp.Or(o.MaxAge, watching.DefaultMaxAge),
	}
	clock := o.Clock
	if clock == nil {
		clock = session.SystemClock()
	}
	var retry backoff.Policy
	if retry, with.err = o.validate(); with.err == nil {
		with.front, with.err = front.New(r.client, r.name, r.isPrefix, front.Options{
			Kind: holdfast.KindElection, Namespace: o.Namespace, Retry: retry, Clock: clock,
		})
	}
	return with
}

// reader returns the reader behind Leader, Observe and Observer of an Election.
func (e *Election) reader() *Reader {
	maxAge := cmp.Or(e.opts.MaxAge, watching.DefaultMaxAge)
	r := &Reader{name: e.Name(), front: e.front, maxAge: maxAge, err: e.opts.validate()}
	if r.err == nil {
		r.err = e.queue.Err()
	}
	if host := e.queue.Host(); host != nil {
		r.spawn = func(f func()) bool { return host.Go(func(context.Context) { f() }) }
	}
	return r
}

// Name is the name or prefix given to NewReader or NewReaderAt.
func (r *Reader) Name() string { return r.name }

// Leader asks etcd who leads, with one linearizable read, and retries until ctx ends.
//
// errors.Is targets: ErrNoLeader; ctx's error, joined with that of the last attempt; holdfast.ErrClientClosed; etcd's
// error where a retry cannot help. A *holdfast.NameError or *holdfast.ArgumentError comes before anything is sent.
func (r *Reader) Leader(ctx context.Context) (Leader, error) {
	if err := r.validate(); err != nil {
		return Leader{}, err
	}
	f, err := r.front.Read(ctx)
	if err != nil {
		return Leader{}, r.failed("leader of", err)
	}
	if f.Entry == nil {
		return Leader{}, fmt.Errorf("election %s: %w", names.Quote(r.name), ErrNoLeader)
	}
	return leaderOf(f), nil
}

// Observe ranges over the leaders: the present one, then each change of the leader or its value, in etcd's order. The
// zero Leader means that no candidate leads. A slow consumer misses changes, but not the latest; failures of etcd only
// delay them.
//
//	for leader, err := range r.Observe(ctx) {
//		if err != nil {
//			return err // one of Leader's, without ErrNoLeader; the range has ended
//		}
//		…
//	}
//
// Each range has a watch, and reads at each change of the leader and each third of MaxAge.
func (r *Reader) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := r.validate(); err != nil {
			yield(Leader{}, err)
			return
		}
		var last *Leader
		err := r.follow(ctx, func(f front.Front) bool {
			l := leaderOf(f)
			if last != nil && l.equalForObservers(*last) {
				return true
			}
			last = &l
			return yield(l, nil)
		})
		if err != nil {
			yield(Leader{}, err)
		}
	}
}

// Observer starts an observer and returns it after its first read, which ctx bounds. Close it after use. The errors are
// those of Leader, without ErrNoLeader.
func (r *Reader) Observer(ctx context.Context) (*Observer, error) {
	return newObserver(ctx, r, nil)
}

func (r *Reader) validate() error {
	if r.err == nil && r.front == nil {
		return &holdfast.ArgumentError{Argument: "Reader", Reason: "is the zero value: make it with NewReader or NewReaderAt"}
	}
	return r.err
}

// failed adds the election to an error, unless that is about an argument.
func (r *Reader) failed(doing string, err error) error {
	var argument *holdfast.ArgumentError
	if errors.As(err, &argument) {
		return err
	}
	return fmt.Errorf("%s election %s: %w", doing, names.Quote(r.name), err)
}

// refresh is the time between two reads of a follower.
func (r *Reader) refresh() time.Duration { return r.maxAge / 3 }

// follow calls handle with the latest front, on the caller's goroutine, until handle returns false (then follow returns
// nil) or following fails.
func (r *Reader) follow(ctx context.Context, handle func(front.Front) bool) error {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	return watching.Latest(ctx, r.told, handle)
}

func (r *Reader) told(ctx context.Context, tell func(front.Front)) error {
	return r.front.Follow(ctx, r.refresh(), tell)
}
