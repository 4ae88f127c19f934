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
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Listing is what stands below a prefix, at one revision.
type Listing[T comparable] struct {
	Revision int64
	Sent     time.Duration // when its first read was sent, by the lister's clock
	Items    map[string]T  // by key
}

// Options are the policies of a Lister, from the ReaderOptions of other packages.
type Options struct {
	// Retry sets the pauses between attempts.
	Retry backoff.Policy
	// MaxAge is how old a listing may get: in each third of it a read checks the watch.
	MaxAge time.Duration
	// Clock is elapsed time.
	Clock func() time.Duration
}

// Resolve returns the options with the default of MaxAge. A value out of range, or a client without KV or
// Watcher, is a *holdfast.ArgumentError.
func (o Options) Resolve(cli *clientv3.Client) (Options, error) {
	err := retry.CheckPauses("ReaderOptions.Retry", o.Retry.Initial, o.Retry.Max)
	switch {
	case cli == nil || cli.KV == nil || cli.Watcher == nil:
		return o, &holdfast.ArgumentError{Argument: "cli", Reason: "is nil, or lacks its KV or Watcher"}
	case o.MaxAge != 0 && o.MaxAge < MinMaxAge:
		return o, &holdfast.ArgumentError{Argument: "ReaderOptions.MaxAge", Reason: "is less than 30 ms"}
	}
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	return o, err
}

// Lister reads what stands below a prefix, and makes a value V of the listing. It is immutable, and may be used by any
// number of goroutines.
type Lister[T comparable, V any] struct {
	env     *lease.Env
	prefix  string
	opts    Options
	decode  func(*mvccpb.KeyValue) (T, bool)
	value   func(Listing[T]) V
	streams *Streams
}

// NewLister returns a lister with resolved options. It leaves out a key if decode returns false.
func NewLister[T comparable, V any](
	cli *clientv3.Client, prefix string, o Options, decode func(*mvccpb.KeyValue) (T, bool), value func(Listing[T]) V,
) *Lister[T, V] {
	return &Lister[T, V]{lease.Alone(cli, o.Retry), prefix, o, decode, value, new(Streams)}
}

// Usable returns why a caller cannot use a reader on top of r, or nil. wrong is what its constructor has found. If the
// reader is the zero value, r is nil.
func (r *Lister[T, V]) Usable(ctx context.Context, wrong error) error {
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
func (r *Lister[T, V]) Read(ctx context.Context) (now V, err error) {
	l, err := r.list(ctx)
	if err != nil {
		return now, lease.EndedBy(ctx, r.env, err)
	}
	return r.value(l), nil
}

func (r *Lister[T, V]) list(ctx context.Context) (Listing[T], error) {
	l := Listing[T]{Sent: r.opts.Clock(), Items: make(map[string]T)}
	resp, err := r.env.Sender.Get(ctx, clientv3.OpGet(r.prefix, clientv3.WithPrefix()))
	if err != nil {
		return l, err
	}
	l.Revision = resp.Header.Revision
	for _, kv := range resp.Kvs {
		r.put(l, kv)
	}
	return l, nil
}

func (r *Lister[T, V]) put(l Listing[T], kv *mvccpb.KeyValue) {
	if item, ok := r.decode(kv); ok {
		l.Items[string(kv.Key)] = item
	} else {
		delete(l.Items, string(kv.Key))
	}
}

// follow calls tell with the value, after each change, and after each regular read.
func (r *Lister[T, V]) follow(ctx context.Context, tell func(Dated[V])) error {
	f := liveListing[T, V]{r: r, tell: func(l Listing[T]) { tell(Dated[V]{r.value(l), l.Sent}) }}
	watched := Follower{
		Env: r.env, Streams: r.streams, From: r.prefix, Opts: []clientv3.OpOption{clientv3.WithPrefix()},
		Every: r.opts.MaxAge / 3, Read: f.read, Hear: f.hear,
	}
	err := watched.Follow(ctx)
	if ctx.Err() != nil {
		return retry.ContextErr(ctx)
	}
	return lease.EndedBy(ctx, r.env, err)
}

// Watch is [Each] of the value.
func (r *Lister[T, V]) Watch(ctx context.Context, same func(a, b V) bool, handle func(V) bool) error {
	return Each(ctx, r.follow, same, handle)
}

// Observe is [Observe] of the value. The errors are those of Read.
func (r *Lister[T, V]) Observe(ctx context.Context) (*Observer[V], error) {
	return Observe(ctx, r.follow, r.opts.Clock, r.opts.MaxAge)
}

// liveListing is the listing as one call of follow keeps it up to date.
type liveListing[T comparable, V any] struct {
	r    *Lister[T, V]
	tell func(Listing[T])
	seen Listing[T]
}

// read reads the keys, tells them, and reports whether they differ from what it has told before.
func (f *liveListing[T, V]) read(ctx context.Context) (changed bool, err error) {
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
func (f *liveListing[T, V]) hear(_ context.Context, events []*clientv3.Event) error {
	changed := false
	for _, ev := range events {
		if ev.Kv.ModRevision <= f.seen.Revision { // a read has told it, or what came after it
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
