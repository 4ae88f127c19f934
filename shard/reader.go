package shard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/watching"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// Owner is the owner of a shard as its entry describes it. The zero Owner: the shard has none.
type Owner struct {
	Member   string           // Options.Member
	Value    string           // Options.Value, such as its address
	Host     string           // machine name; empty if its session is anonymous
	PID      int              // 0 if its session is anonymous
	Since    time.Time        // since when it owns the shard, by its clock; zero for about the first second
	Key      string           // of its entry in etcd
	Lease    clientv3.LeaseID // of its session
	Revision int64            // at which it queued: its token, without an epoch
}

// Owners are the owners of all shards, at one revision.
type Owners struct {
	Revision int64   // the store at this revision, or a later one before the next change
	Owners   []Owner // by index; empty before the first Run

	resized int64 // the revision of the latest change of their number; 0: there was none
}

// Owner returns the owner of a shard: zero if it has none, or if there is no such shard.
func (o Owners) Owner(index int) Owner {
	if index < 0 || index >= len(o.Owners) {
		return Owner{}
	}
	return o.Owners[index]
}

// Snapshot is what an Observer knows.
type Snapshot struct {
	Owners
	view.Observed
}

// Reader reads who owns which shard, without a session and without writing: its role needs to read
// NAMESPACE/shard/NAME/. It is immutable, does no I/O when made, and may be used by any number of goroutines.
type Reader struct {
	client  *clientv3.Client
	name    string
	prefix  string                         // of all keys of the shards
	count   string                         // the key of their number
	listing *watching.Lister[item, Owners] // nil if err is not
	err     error                          // why the reader cannot be used
}

// ReaderOptions are the policies of a Reader.
type ReaderOptions = view.ReaderOptions

// NewReader returns a reader of the shards of that name in the default namespace. A bad name, option or client is an
// error of the first call. Close the client after the reader's observers.
func NewReader(cli *clientv3.Client, name string) *Reader {
	return (&Reader{client: cli, name: name}).With(ReaderOptions{})
}

// With returns a copy with these options, in place of those it had.
func (r *Reader) With(o ReaderOptions) *Reader {
	with := &Reader{client: r.client, name: r.name}
	namespace, err := names.Namespace(o.Namespace)
	if o.Clock == nil {
		o.Clock = session.SystemClock()
	}
	opts, bad := watching.Options{Retry: o.Retry, MaxAge: o.MaxAge, Clock: o.Clock}.Resolve(r.client)
	if with.err = errors.Join(err, bad, CheckName(r.name)); with.err != nil {
		return with
	}
	with.prefix = layout.Names(namespace, holdfast.KindShard) + r.name + "/"
	with.count = layout.Named(namespace, holdfast.KindShard, r.name).CountKey()
	with.listing = watching.NewLister(r.client, with.prefix, opts, with.decode, ownersOf)
	return with
}

// Name returns the name of the shards.
func (r *Reader) Name() string { return r.name }

// Group returns the group of the members, for member.NewReader; its role needs to read NAMESPACE/member/shard/NAME/.
func (r *Reader) Group() string { return layout.ShardGroup(r.name) }

// Owners asks etcd for the owners of all shards, with one linearizable read, and retries until ctx ends.
//
// Errors: ctx's, joined with that of the last attempt; holdfast.ErrClientClosed; etcd's where a retry cannot help. A
// *holdfast.NameError or *holdfast.ArgumentError comes before anything is sent.
func (r *Reader) Owners(ctx context.Context) (Owners, error) {
	if err := r.listing.Usable(ctx, r.err); err != nil {
		return Owners{}, err
	}
	now, err := r.listing.Read(ctx)
	if err != nil {
		return Owners{}, r.failed("list", err)
	}
	return now, nil
}

// Watch ranges over the owners: as they are now, then after each change of any of them. A slow consumer misses changes,
// but not the latest; failures of etcd only delay them. The error, one of those of Owners, ends the range. Each range
// has a watch, and a read in each third of MaxAge.
func (r *Reader) Watch(ctx context.Context) iter.Seq2[Owners, error] {
	return func(yield func(Owners, error) bool) {
		if err := r.listing.Usable(ctx, r.err); err != nil {
			yield(Owners{}, err)
			return
		}
		same := func(a, b Owners) bool { return slices.Equal(a.Owners, b.Owners) }
		err := r.listing.Watch(ctx, same, func(now Owners) bool { return yield(now, nil) })
		if err != nil {
			yield(Owners{}, r.failed("watch", err))
		}
	}
}

// Observer keeps the owners in memory: see [view.Observed].
type Observer struct{ of *watching.Observer[Owners] }

// Observer starts an observer. Close it after use. The errors are those of Owners.
func (r *Reader) Observer(ctx context.Context) (*Observer, error) {
	if err := r.listing.Usable(ctx, r.err); err != nil {
		return nil, err
	}
	of, err := r.listing.Observe(ctx)
	if err != nil {
		return nil, r.failed("observe", err)
	}
	return &Observer{of}, nil
}

// Current returns what the observer knows now, for the owner to compare its token. Do not change its Owners.
func (o *Observer) Current() Snapshot {
	now := o.of.Current()
	return Snapshot{now.Value, now.Observed}
}

// Owner returns the owner of a shard, as the observer last heard of it.
func (o *Observer) Owner(index int) Owner { return o.Current().Owner(index) }

// Close ends the observer.
func (o *Observer) Close() { o.of.Close() }

func (r *Reader) failed(doing string, err error) error {
	return fmt.Errorf("%s owners of shards %s: %w", doing, names.Quote(r.name), err)
}

// item is a key of the shards: an entry, a claim, or their number.
type item struct {
	count   int   // 0: it is an entry or a claim
	resized int64 // of the number, if it is not the first
	index   int
	owner   Owner // of an entry; of a claim its revision alone
}

// decode returns the item of a key. It leaves out keys of other names: "orders/eu" is none of "orders".
func (r *Reader) decode(kv *mvccpb.KeyValue) (item, bool) {
	if string(kv.Key) == r.count {
		n, _ := strconv.Atoi(string(kv.Value))
		it := item{count: n}
		if kv.ModRevision > kv.CreateRevision {
			it.resized = kv.ModRevision
		}
		return it, n <= MaxCount // one below 1 counts as none
	}
	shard, own, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), r.prefix), "/")
	index, err := strconv.Atoi(shard)
	part, id, _ := strings.Cut(own, "/")
	if err != nil || strings.Contains(id, "/") {
		return item{}, false
	}
	switch part {
	case "@claim":
		return item{index: index, owner: Owner{Revision: kv.CreateRevision}}, true
	case "@":
	default:
		return item{}, false
	}
	o := Owner{Key: string(kv.Key), Lease: clientv3.LeaseID(kv.Lease), Revision: kv.CreateRevision}
	v, _ := layout.DecodeValue(kv.Value)
	o.Member, o.Value, o.Host, o.PID, o.Since = v.Owner, v.Data, v.Host, v.PID, v.Held
	return item{index: index, owner: o}, true
}

// ownersOf returns the owners. The oldest entry of a shard holds, unless a claim is older: then the entry of the claim
// has gone without a release, and the shard has no owner until the lock delay is over.
func ownersOf(l watching.Listing[item]) Owners {
	var n int
	var resized int64
	for _, it := range l.Items {
		n, resized = max(n, it.count), max(resized, it.resized)
	}
	owners := make([]Owner, n)
	for _, it := range l.Items {
		if it.count > 0 || it.index < 0 || it.index >= n {
			continue
		}
		first := &owners[it.index]
		own := first.Key == "" && it.owner.Revision == first.Revision
		if it.owner.Revision < first.Revision || own || first.Revision == 0 {
			*first = it.owner
		}
	}
	for i := range owners {
		if owners[i].Key == "" {
			owners[i] = Owner{}
		}
	}
	return Owners{l.Revision, owners, resized}
}
