package watching

import (
	"cmp"
	"context"
	"maps"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Listing is what stands below a prefix, at one revision.
type Listing[T comparable] struct {
	Revision int64
	Sent     time.Duration // when the read was sent that it began with, by the reader's clock
	Items    map[string]T  // by key
}

// Options are the policies of a Reader: those of the ReaderOptions of other packages.
type Options struct {
	// Retry sets the pauses between attempts. Its Attempt bounds how long a watch may take to begin.
	Retry backoff.Policy
	// MaxAge is how old a listing may get: a watch is checked by a read in each third of it.
	MaxAge time.Duration
	// Clock is elapsed time.
	Clock func() time.Duration
}

// Resolve returns the options with the defaults of Retry and MaxAge. A value out of range is a *holdfast.ArgumentError
// of ReaderOptions, and so is a client that cannot read.
func (o Options) Resolve(cli *clientv3.Client) (Options, error) {
	retry, err := requests.Policy("ReaderOptions.Retry", o.Retry)
	switch {
	case cli == nil || cli.KV == nil || cli.Watcher == nil:
		return o, &holdfast.ArgumentError{Argument: "cli", Reason: "is nil, or lacks its KV or Watcher"}
	case o.MaxAge != 0 && o.MaxAge < MinMaxAge:
		return o, &holdfast.ArgumentError{Argument: "ReaderOptions.MaxAge", Reason: "is less than 30 ms"}
	}
	o.Retry, o.MaxAge = retry, cmp.Or(o.MaxAge, DefaultMaxAge)
	return o, err
}

// Reader reads what stands below a prefix, as a value V that is made of the listing. It is immutable, and may be used
// by any number of goroutines.
type Reader[T comparable, V any] struct {
	client  *clientv3.Client
	prefix  string
	opts    Options
	decode  func(*mvccpb.KeyValue) (T, bool)
	value   func(Listing[T]) V
	sender  *requests.Sender
	streams *Streams
}

// NewReader returns a reader with resolved options. A key for which decode returns false is left out.
func NewReader[T comparable, V any](
	cli *clientv3.Client, prefix string, o Options, decode func(*mvccpb.KeyValue) (T, bool), value func(Listing[T]) V,
) *Reader[T, V] {
	return &Reader[T, V]{cli, prefix, o, decode, value, requests.NewSender(cli, o.Retry), new(Streams)}
}

// Usable returns why a reader that is built on r cannot be called, or nil. wrong is what its constructor has found. If
// that reader is the zero value, r is nil.
func (r *Reader[T, V]) Usable(ctx context.Context, wrong error) error {
	switch {
	case wrong != nil:
		return wrong
	case r == nil:
		reason := "is the zero value: make it with NewReader"
		return &holdfast.ArgumentError{Argument: "Reader", Reason: reason}
	case ctx == nil:
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	return nil
}

// Read reads the value with one linearizable read, and retries until ctx ends. It returns ctx's error, joined with that
// of the last attempt; holdfast.ErrClientClosed; or etcd's, where a retry cannot help.
func (r *Reader[T, V]) Read(ctx context.Context) (now V, err error) {
	l, err := r.list(ctx)
	if open := r.client.Ctx(); err != nil && ctx.Err() == nil && open != nil && open.Err() != nil {
		err = holdfast.ErrClientClosed
	}
	if err != nil {
		return now, err
	}
	return r.value(l), nil
}

// retry returns the policy without a limit for an attempt: the sender bounds each request, and a watch has no timeout.
func (r *Reader[T, V]) retry() backoff.Policy {
	policy := r.opts.Retry
	policy.Attempt = 0
	return policy
}

func (r *Reader[T, V]) list(ctx context.Context) (Listing[T], error) {
	l := Listing[T]{Sent: r.opts.Clock(), Items: make(map[string]T)}
	resp, err := r.sender.Get(ctx, clientv3.OpGet(r.prefix, clientv3.WithPrefix()))
	if err != nil {
		return l, err
	}
	l.Revision = resp.Header.Revision
	for _, kv := range resp.Kvs {
		r.put(l, kv)
	}
	return l, nil
}

func (r *Reader[T, V]) put(l Listing[T], kv *mvccpb.KeyValue) {
	if item, ok := r.decode(kv); ok {
		l.Items[string(kv.Key)] = item
	} else {
		delete(l.Items, string(kv.Key))
	}
}

// dated is a value, and when the read was sent that its listing began with.
type dated[V any] struct {
	value V
	sent  time.Duration
}

// follow calls tell with the value, after each change, and after each regular read. It survives every failure of its
// watch.
func (r *Reader[T, V]) follow(caller context.Context, tell func(dated[V])) error {
	open := r.client.Ctx()
	if open == nil { // a client that clientv3 did not make
		open = context.Background()
	}
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	defer context.AfterFunc(open, cancel)()
	f := follower[T, V]{r: r, tell: func(l Listing[T]) { tell(dated[V]{r.value(l), l.Sent}) }}
	watched := Follower{
		Client: r.client, Open: ctx, Streams: r.streams, From: r.prefix, End: clientv3.GetPrefixRangeEnd(r.prefix),
		Within: r.opts.Retry.Attempt, Every: r.opts.MaxAge / 3, Read: f.read, Hear: f.hear,
	}
	for {
		err := backoff.Retry(ctx, r.retry(), watched.Watch)
		switch {
		case caller.Err() != nil:
			return retry.ContextErr(caller)
		case open.Err() != nil:
			return holdfast.ErrClientClosed
		case err != nil:
			return err
		}
		// The watch was healthy before it ended, so the pauses start anew.
	}
}

// follower is one call of follow.
type follower[T comparable, V any] struct {
	r    *Reader[T, V]
	tell func(Listing[T])
	seen Listing[T]
}

// read reads the keys, tells them, and reports whether they have changed since what was told before.
func (f *follower[T, V]) read(ctx context.Context) (changed bool, err error) {
	now, err := f.r.list(ctx)
	if err != nil {
		return false, err
	}
	changed = !maps.Equal(now.Items, f.seen.Items)
	f.seen = now
	f.tell(f.seen)
	return changed, nil
}

// hear applies events.
func (f *follower[T, V]) hear(_ context.Context, events []*clientv3.Event) error {
	changed := false
	for _, ev := range events {
		if ev.Kv.ModRevision <= f.seen.Revision {
			continue
		}
		changed = true
		if ev.Type == clientv3.EventTypeDelete {
			delete(f.seen.Items, string(ev.Kv.Key))
		} else {
			f.r.put(f.seen, ev.Kv)
		}
	}
	if changed {
		f.seen.Revision = events[len(events)-1].Kv.ModRevision
		f.tell(f.seen)
	}
	return nil
}
