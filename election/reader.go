package election

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

// Reader asks, and watches, who leads an election, in a process that is no
// candidate. It writes nothing and has no lease: an etcd client is all it needs,
// with a role that may read NAMESPACE/election/ and NAMESPACE/epoch.
//
// It is immutable, does no I/O when made, and may be shared freely.
type Reader struct {
	name   string
	front  *queue.FrontReader // nil only beside err
	maxAge time.Duration
	run    func(f func()) bool // runs f on a goroutine; false: not any more. nil: "go"
	err    error               // why the reader cannot be used
}

// ReaderOptions of a Reader. The zero value of every field is its default; a
// value that cannot be used is a *holdfast.ArgumentError or *holdfast.NameError
// from the first call, before anything is sent.
type ReaderOptions struct {
	// Namespace is that of the candidates' sessions. Default "holdfast". It is
	// where the epoch is read in any case.
	Namespace string

	// MaxAge is as in Options: how old an Observer's answer may be and still be
	// trusted. Default 15 s, at least 30 ms.
	MaxAge time.Duration

	// Retry paces what is tried again, and bounds each single read by its
	// Attempt: default 4 s, less than 5 s.
	Retry backoff.Policy

	// Clock is elapsed time; default session.SystemClock(). For tests.
	Clock session.Clock
}

// maxAttempt is what ReaderOptions.Retry.Attempt must be less than: from there
// on an etcd member may give up first.
const maxAttempt = 5 * time.Second

func (o ReaderOptions) check() error {
	if err := (Options{MaxAge: o.MaxAge}).check(); err != nil {
		return err
	}
	if err := o.Retry.Validate(); err != nil {
		return &holdfast.ArgumentError{Argument: "ReaderOptions.Retry", Reason: err.Error()}
	}
	if o.Retry.Attempt >= maxAttempt {
		return &holdfast.ArgumentError{
			Argument: "ReaderOptions.Retry.Attempt", Reason: fmt.Sprintf("is %v, not less than %v", o.Retry.Attempt, maxAttempt),
		}
	}
	return nil
}

// NewReader returns a reader of the election that New makes of name in a session
// of that namespace. A nil o means all defaults. A bad name, option or client is
// an error of the first call. The client is the caller's to close, after the
// reader's observers; a closed one ends them with holdfast.ErrClientClosed.
func NewReader(cli *clientv3.Client, name string, o *ReaderOptions) *Reader {
	return newReader(cli, name, false, o)
}

// NewReaderAt returns a reader of the election that NewAt makes of prefix, which
// may be one of etcd's own candidates.
func NewReaderAt(cli *clientv3.Client, prefix string, o *ReaderOptions) *Reader {
	return newReader(cli, prefix, true, o)
}

func newReader(cli *clientv3.Client, name string, foreign bool, o *ReaderOptions) *Reader {
	if o == nil {
		o = &ReaderOptions{}
	}
	r := &Reader{name: name, maxAge: Options{MaxAge: o.MaxAge}.maxAge()}
	if r.err = o.check(); r.err == nil {
		r.front, r.err = queue.NewReader(cli, name, foreign, queue.ReaderOptions{
			Kind: "election", Namespace: o.Namespace, Retry: o.Retry, Clock: o.Clock,
		})
	}
	return r
}

// reader is what Leader, Observe and Observer of an Election use.
func (e *Election) reader() *Reader {
	r := &Reader{name: e.Name(), front: e.front, maxAge: e.opts.maxAge(), err: e.opts.check()}
	if r.err == nil {
		r.err = e.queue.Err()
	}
	if sess := e.queue.Session(); sess != nil {
		r.run = func(f func()) bool { return sess.Base().Go(func(context.Context) { f() }) }
	}
	return r
}

// Name is the name, or prefix, as it was given.
func (r *Reader) Name() string { return r.name }

// Leader asks etcd who leads: one linearizable read. That it was so when etcd
// answered does not mean that it still is. Give it a context that ends: with
// etcd out of reach it goes on trying until then.
//
// errors.Is targets: ErrNoLeader when nobody leads; the context's error, with
// what the last attempt met; holdfast.ErrClientClosed; what etcd said that no retry can mend, such as that
// reading is not permitted. *holdfast.NameError and *holdfast.ArgumentError come
// before anything is sent.
//
// To ask often, or to be told, use an Observer or Observe.
func (r *Reader) Leader(ctx context.Context) (Leader, error) {
	if err := r.usable(); err != nil {
		return Leader{}, r.failed("leader of", err)
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

// Observe ranges over who leads: first as it is, then at each change of leader
// or of its value, in the order of etcd's history. That nobody leads is told as
// well, by the zero Leader. A consumer that is slow gets the latest and misses
// what came in between. Compaction of etcd's history, changes of etcd's leader,
// a member that hangs and disconnections are survived without a word; changes
// are then told late. That only Leader.Since has become known is no change.
//
//	for leader, err := range r.Observe(ctx) {
//		if err != nil {
//			return err // it has ended: ctx, the client, or etcd refuses
//		}
//		…
//	}
//
// The sequence ends with an error and never without one, unless the loop is
// left: the context's error when ctx ends; holdfast.ErrClientClosed; a
// *holdfast.NameError or *holdfast.ArgumentError; or what etcd said that no retry can mend, such as that
// reading is not permitted. The Leader beside an error is zero and says nothing.
//
// What is told may be over when it arrives. Each range is an observation of its
// own: one watch, and a read at each change of leader and every third of MaxAge.
// Its goroutine ends with the loop.
func (r *Reader) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := r.usable(); err != nil {
			yield(Leader{}, err)
			return
		}
		var told *Leader
		err := r.follow(ctx, func(f queue.Front) bool {
			l := leaderOf(f)
			if told != nil && l.sameBut(*told) {
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

// Observer starts an observer and returns it when it knows who leads, or that
// nobody does; ctx bounds that wait only. Close it when it is no longer needed.
//
// Errors are those of Leader, except that having no leader is none. Nothing is
// left to close then.
func (r *Reader) Observer(ctx context.Context) (*Observer, error) {
	if err := r.usable(); err != nil {
		return nil, err
	}
	return r.observer(ctx, nil)
}

func (r *Reader) usable() error {
	if r.err == nil && r.front == nil {
		return &holdfast.ArgumentError{Argument: "Reader", Reason: "is the zero value: make it with NewReader or NewReaderAt"}
	}
	return r.err
}

func (r *Reader) failed(doing string, err error) error {
	var name *holdfast.NameError
	var argument *holdfast.ArgumentError
	if errors.As(err, &name) || errors.As(err, &argument) {
		return err
	}
	return fmt.Errorf("%s election %s: %w", doing, names.Quote(r.name), err)
}

// refresh is the time between two reads.
func (r *Reader) refresh() time.Duration { return r.maxAge / 3 }

// follow calls tell with the latest front, on the caller's goroutine, until tell
// returns false (nil) or following ends (its error). tell may take its time:
// fronts do not queue up, the latest replaces the one before.
func (r *Reader) follow(ctx context.Context, tell func(queue.Front) bool) error {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	ctx, cancel := context.WithCancel(ctx)
	latest := make(chan queue.Front, 1)
	ended := make(chan error, 1)
	go func() { // joined below
		ended <- r.front.Follow(ctx, r.refresh(), func(f queue.Front) {
			select {
			case <-latest:
			default:
			}
			latest <- f // there is room: nobody else sends
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
		case f := <-latest:
			if !tell(f) {
				return nil
			}
		case err := <-ended:
			return err
		}
	}
}
