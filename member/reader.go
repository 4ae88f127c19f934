package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/watching"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// Info is a member as its key describes it.
type Info struct {
	Name     string           // in its group
	Value    string           // what it says of itself
	Capacity                  // its part of the shards
	Retiring bool             // it is about to leave
	Joined   time.Time        // by its own clock, in UTC and milliseconds
	Settle   time.Duration    // Options.Settle: for how long it takes no shards after that
	Owner    string           // session.Options.Owner of its session
	Host     string           // empty if the session is anonymous
	PID      int              // 0 if the session is anonymous
	Key      string           // in etcd
	Lease    clientv3.LeaseID // of its session
	Created  int64            // the revision of the first put under this lease
	Modified int64            // the revision of the latest put
}

// Group is a group at one revision.
type Group struct {
	Revision int64  // the store at this revision, or a later one before the next change of the group
	Members  []Info // by name; those of one name by age

	// Absent are the members with Options.Rejoin that have left or died, and are expected back, by name; of one name the
	// last. No name is in Members, too. Value is empty.
	Absent []Info

	// Drained and Pins are the wishes of operators, in a group of shards: by member, and by shard.
	Drained []Drain
	Pins    []Pin
}

// Drain is an operator's wish: the member is to be out of service.
type Drain struct {
	Member string           // its name
	By     string           // the operator
	At     time.Time        // by the operator's clock
	Lease  clientv3.LeaseID // of its key; the member renews it while it is there
}

// Pin is an operator's wish: the shard is to be the member's for a while.
type Pin struct {
	Shard     int
	Member    string    // its name
	By        string    // the operator
	At, Until time.Time // by the operator's clock
}

// Snapshot is what an Observer knows.
type Snapshot struct {
	Group
	view.Observed
}

// Reader reads groups, without a session and without writing: its role needs to read NAMESPACE/member/GROUP/. It is
// immutable, does no I/O when made, and may be used by any number of goroutines.
type Reader struct {
	client  *clientv3.Client
	group   string
	listing *watching.Lister[item, Group] // nil if err is not
	err     error                         // why the reader cannot be used
}

// ReaderOptions are the policies of a Reader.
type ReaderOptions = view.ReaderOptions

// NewReader returns a reader of a group in the default namespace. A bad name, option or client is an error of the first
// call. Close the client after the reader's observers.
func NewReader(cli *clientv3.Client, group string) *Reader {
	return (&Reader{client: cli, group: group}).With(ReaderOptions{})
}

// With returns a copy with these options, in place of those it had.
func (r *Reader) With(o ReaderOptions) *Reader {
	with := &Reader{client: r.client, group: r.group}
	namespace, err := names.Namespace(o.Namespace)
	if o.Clock == nil {
		o.Clock = session.SystemClock()
	}
	opts, bad := watching.Options{Retry: o.Retry, MaxAge: o.MaxAge, Clock: o.Clock}.Resolve(r.client)
	if with.err = errors.Join(err, bad, names.Check("group", r.group)); with.err != nil {
		return with
	}
	at := layout.Members(namespace, r.group)
	with.listing = watching.NewLister(r.client, at.Entries, opts, decoder(at), groupOf)
	return with
}

// Group returns the name of the group.
func (r *Reader) Group() string { return r.group }

// Members asks etcd for the members, with one linearizable read, and retries until ctx ends.
//
// Errors: ctx's, joined with that of the last attempt; holdfast.ErrClientClosed; etcd's where a retry cannot help. A
// *holdfast.NameError or *holdfast.ArgumentError comes before anything is sent.
func (r *Reader) Members(ctx context.Context) (Group, error) {
	if err := r.listing.Usable(ctx, r.err); err != nil {
		return Group{}, err
	}
	now, err := r.listing.Read(ctx)
	if err != nil {
		return Group{}, r.failed("list", err)
	}
	return now, nil
}

// Watch ranges over the group: as it is now, then after each change, in etcd's order. A slow consumer misses changes,
// but not the latest; failures of etcd only delay them. The error, one of those of Members, ends the range.
//
//	for group, err := range r.Watch(ctx) {
//		if err != nil {
//			return err
//		}
//		…
//	}
//
// Each range has a watch, and a read in each third of MaxAge.
func (r *Reader) Watch(ctx context.Context) iter.Seq2[Group, error] {
	return func(yield func(Group, error) bool) {
		if err := r.listing.Usable(ctx, r.err); err != nil {
			yield(Group{}, err)
			return
		}
		same := func(a, b Group) bool {
			return slices.Equal(a.Members, b.Members) && slices.Equal(a.Absent, b.Absent) &&
				slices.Equal(a.Drained, b.Drained) && slices.Equal(a.Pins, b.Pins)
		}
		err := r.listing.Watch(ctx, same, func(now Group) bool { return yield(now, nil) })
		if err != nil {
			yield(Group{}, r.failed("watch", err))
		}
	}
}

// Observer keeps a group in memory: see [view.Observed].
type Observer struct{ of *watching.Observer[Group] }

// Observer starts an observer. Close it after use. The errors are those of Members.
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

// Current returns what the observer knows now. Do not change its Members.
func (o *Observer) Current() Snapshot {
	now := o.of.Current()
	return Snapshot{now.Value, now.Observed}
}

// Close ends the observer.
func (o *Observer) Close() { o.of.Close() }

// failed adds the group to an error.
func (r *Reader) failed(doing string, err error) error {
	return fmt.Errorf("%s group %s: %w", doing, names.Quote(r.group), err)
}

// item is a member, its reservation, or an operator's wish.
type item struct {
	Info
	reserved bool
	drain    Drain
	pin      Pin
}

// decoder returns the function for the keys of a group. It leaves out keys of strangers: neither a member nor an
// operator has put them.
func decoder(at layout.Keyspace) func(kv *mvccpb.KeyValue) (item, bool) {
	return func(kv *mvccpb.KeyValue) (item, bool) {
		lease := clientv3.LeaseID(kv.Lease)
		if s, shard, ok := layout.SteerIn(at, kv); ok && shard < 0 {
			return item{drain: Drain{s.Member, s.By, s.At, lease}}, true
		} else if ok {
			return item{pin: Pin{shard, s.Member, s.By, s.At, s.Until}}, true
		}
		m, ok := layout.DecodeMember(kv.Value)
		return item{Info: Info{
			Name: m.Name, Value: m.Data, Capacity: Capacity(m.Capacity), Retiring: m.Retiring, Joined: m.Joined,
			Settle: m.Settle, Owner: m.Owner, Host: m.Host, PID: m.PID,
			Key: string(kv.Key), Lease: lease, Created: kv.CreateRevision, Modified: kv.ModRevision,
		}, reserved: m.Reserved}, ok
	}
}

func groupOf(l watching.Listing[item]) Group {
	g := Group{Revision: l.Revision}
	there := make(map[string]bool)
	for _, it := range l.Items {
		switch {
		case it.drain.Member != "":
			g.Drained = append(g.Drained, it.drain)
		case it.pin.Member != "":
			g.Pins = append(g.Pins, it.pin)
		case !it.reserved:
			g.Members = append(g.Members, it.Info)
			there[it.Name] = true
		}
	}
	for _, it := range l.Items {
		if it.reserved && !there[it.Name] {
			g.Absent = append(g.Absent, it.Info)
		}
	}
	order := func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Created, b.Created), cmp.Compare(a.Key, b.Key))
	}
	slices.SortFunc(g.Members, order)
	// Of one name the youngest reservation counts: an older one is of the time before the member came back.
	slices.SortFunc(g.Absent, func(a, b Info) int { return cmp.Or(cmp.Compare(a.Name, b.Name), order(b, a)) })
	slices.SortFunc(g.Drained, func(a, b Drain) int { return cmp.Compare(a.Member, b.Member) })
	slices.SortFunc(g.Pins, func(a, b Pin) int { return cmp.Compare(a.Shard, b.Shard) })
	g.Absent = slices.CompactFunc(g.Absent, func(a, b Info) bool { return a.Name == b.Name })
	return g
}
