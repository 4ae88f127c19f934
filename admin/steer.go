package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	// DefaultPin is how long MoveShard pins a shard by default: an hour.
	DefaultPin = time.Hour

	// MaxPin is the longest pin: a day.
	MaxPin = 24 * time.Hour

	minPin = time.Second
)

// MemberError says that shards have no member of a name, neither one that runs nor one that is expected back. Nothing
// was written.
type MemberError struct {
	Name    string   // of the shards
	Member  string   // that was named
	Members []string // that are there, sorted
}

func (e *MemberError) Error() string {
	return fmt.Sprintf("shards %s have no member %s; there are: %q", names.Quote(e.Name), names.Quote(e.Member), e.Members)
}

// ShardError says that there is no shard of an index. Nothing was written.
type ShardError struct {
	Name  string // of the shards
	Index int
	Count int // how many there are
}

func (e *ShardError) Error() string {
	return fmt.Sprintf("there is no shard %d of %s: its %d shards are 0 to %d", e.Index, names.Quote(e.Name), e.Count,
		e.Count-1)
}

// DrainMember takes a member of shards out of service: it goes on, and its shards are handed over to others in order,
// as those of all processes of its name are, also later ones. It stands until UndrainMember, or until the member has
// been gone for an hour (and a quarter at most). To drain a member again is no error.
//
// Errors: *holdfast.ArgumentError and *holdfast.NameError before anything is sent; *MemberError; ctx's, joined with
// that of the last attempt: then the member may be drained, now or later; etcd's where a retry cannot help. It may be
// repeated. The role shard-operators is enough.
func (c *Client) DrainMember(ctx context.Context, name, member string) error {
	at, err := c.group(ctx, name, member)
	if err != nil {
		return err
	}
	s := steering{Client: c, name: name, at: at, key: layout.DrainedKey(at, member), ttl: layout.DrainedFor}
	s.says = layout.Steer{Member: member, By: c.owner, At: time.Now()}
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("drain member %s of shards %s: %w", names.Quote(member), names.Quote(name), err)
	}
	return nil
}

// UndrainMember puts a member of shards back into service, and reports whether DrainMember had taken it out. Errors are
// those of DrainMember, without a *MemberError: the member may have gone.
func (c *Client) UndrainMember(ctx context.Context, name, member string) (was bool, err error) {
	at, err := c.group(ctx, name, member)
	if err != nil {
		return false, err
	}
	key := layout.DrainedKey(at, member)
	err = backoff.Retry(ctx, c.policy, func(ctx context.Context) error {
		reply, err := c.read(ctx, clientv3.OpGet(key))
		if err != nil {
			return err
		}
		kv := reply.First(0)
		if kv == nil {
			return nil
		}
		was = true
		return c.endSteer(ctx, kv)
	})
	if err != nil {
		return was, fmt.Errorf("undrain member %s of shards %s: %w", names.Quote(member), names.Quote(name), err)
	}
	return was, nil
}

// Pinned is what MoveShard has done.
type Pinned struct {
	Until    time.Time // when the pin ends
	Replaced string    // the member that the shard was pinned to until now; "" if it was not
}

// MoveShard pins a shard to a member: it goes there, beside the part that the member has anyway, and comes back after
// so long, DefaultPin if that is 0, MaxPin at most. Members ignore the pin while its member is absent or out of
// service, or has as many shards as its MaxShards. A second pin of one shard replaces the first. To end one early,
// replace it by one for a second.
//
// Errors are those of DrainMember; *ShardError; ErrNoShards.
func (c *Client) MoveShard(
	ctx context.Context, name string, index int, member string, d time.Duration,
) (Pinned, error) {
	at, err := c.group(ctx, name, member)
	if err != nil {
		return Pinned{}, err
	}
	if d == 0 {
		d = DefaultPin
	}
	switch {
	case index < 0 || index >= layout.MaxCount:
		reason := fmt.Sprintf("is %d, not between 0 and %d", index, layout.MaxCount-1)
		return Pinned{}, &holdfast.ArgumentError{Argument: "index", Reason: reason}
	case d < minPin || d > MaxPin:
		reason := fmt.Sprintf("is %v, not between %v and %v", d, minPin, MaxPin)
		return Pinned{}, &holdfast.ArgumentError{Argument: "d", Reason: reason}
	}
	s := steering{Client: c, name: name, at: at, key: layout.PinKey(at, index), index: index, pin: true, ttl: d}
	s.says = layout.Steer{Member: member, By: c.owner, At: time.Now()}
	if err := s.run(ctx); err != nil {
		return Pinned{}, fmt.Errorf("move shard %d of %s to member %s: %w", index, names.Quote(name),
			names.Quote(member), err)
	}
	p := Pinned{Until: s.says.Until}
	if s.before != nil {
		old, _ := layout.DecodeSteer(s.before.Value)
		p.Replaced = old.Member
	}
	return p, nil
}

// group returns where the members of shards stand.
func (c *Client) group(ctx context.Context, name, member string) (layout.Keyspace, error) {
	if err := c.usable(ctx); err != nil {
		return layout.Keyspace{}, err
	}
	if _, err := c.find(holdfast.KindShard, name); err != nil {
		return layout.Keyspace{}, err
	}
	reason := badText(member)
	if member == "" {
		reason = "is empty"
	}
	if reason != "" {
		return layout.Keyspace{}, &holdfast.ArgumentError{Argument: "member", Reason: reason}
	}
	return layout.Members(c.namespace, layout.ShardGroup(name)), nil
}

// endSteer removes a key that steers. It revokes the key's lease: a copy of its put that is late finds none.
func (c *Client) endSteer(ctx context.Context, kv *mvccpb.KeyValue) error {
	if kv.Lease != 0 {
		return c.revoke(ctx, clientv3.LeaseID(kv.Lease))
	}
	key := string(kv.Key) // put by hand
	_, err := requests.Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)},
		Then: []clientv3.Op{clientv3.OpDelete(key)},
	}.Ask(ctx, c.sender, requests.Write)
	return err
}

func (c *Client) revoke(ctx context.Context, id clientv3.LeaseID) error {
	revoke := func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) { return c.client.Revoke(ctx, id) }
	_, err := requests.Ask(ctx, c.sender, requests.Write, revoke)
	if etcderr.Classify(err) == etcderr.LeaseGone {
		return nil
	}
	return err
}

// steering is one call that puts a key beside the members, on a lease of its own.
type steering struct {
	*Client
	name  string          // of the shards
	at    layout.Keyspace // the members
	key   string
	pin   bool
	index int // of a pin
	ttl   time.Duration
	says  layout.Steer

	lease  clientv3.LeaseID
	before *mvccpb.KeyValue // which the key has replaced
}

// run puts the key. After an error it revokes the lease, so that no copy of the put can arrive later, if etcd can be
// reached.
func (s *steering) run(ctx context.Context) error {
	err := backoff.Retry(ctx, s.policy, s.try)
	switch {
	case err == nil && s.before != nil && s.before.Lease != 0:
		_ = s.revoke(ctx, clientv3.LeaseID(s.before.Lease)) // it has no key, and ends by itself
	case err != nil && s.lease != clientv3.NoLease:
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.revoke(late, s.lease) // it ends by itself
	}
	return err
}

// try puts the key if the member and the shard are there, and if the key is still what was read: a copy that is late
// undoes nothing.
func (s *steering) try(ctx context.Context) error {
	of := requests.Ops{}
	own := of.Add(clientv3.OpGet(s.key))
	group := of.Add(clientv3.OpGet(s.at.Entries, clientv3.WithPrefix()))
	count := of.Add(clientv3.OpGet(layout.Named(s.namespace, holdfast.KindShard, s.name).CountKey()))
	reply, err := s.read(ctx, of...)
	if err != nil {
		return err
	}
	kv := reply.First(own)
	if kv != nil && s.lease != clientv3.NoLease && clientv3.LeaseID(kv.Lease) == s.lease {
		return nil // by a copy whose reply was lost
	}
	if err := s.check(reply.Range(group).Kvs, reply.First(count)); err != nil {
		return retry.Final(err)
	}
	if s.lease == clientv3.NoLease {
		granted, _, err := requests.Once(ctx, s.sender, requests.Write,
			func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
				return s.client.Grant(ctx, int64((s.ttl+time.Second-1)/time.Second))
			})
		switch {
		case err != nil && etcderr.Classify(err) == etcderr.Unknown: // a lease without a key ends by itself
			return retry.Again(fmt.Errorf("grant a lease: %w", err))
		case err != nil:
			return fmt.Errorf("grant a lease: %w", err)
		}
		s.lease = granted.ID
		if s.pin {
			s.says.Until = time.Now().Add(time.Duration(granted.TTL) * time.Second)
		}
	}
	value, err := s.says.Encode()
	if err != nil {
		return retry.Final(err)
	}
	mod := int64(0)
	if kv != nil {
		mod = kv.ModRevision
	}
	put, err := requests.Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.key), "=", mod)},
		Then: []clientv3.Op{clientv3.OpPut(s.key, value, clientv3.WithLease(s.lease))},
	}.Once(ctx, s.sender, requests.Write)
	switch {
	case err != nil && etcderr.Classify(err) == etcderr.Unknown, err == nil && !put.Succeeded:
		s.before = kv
		return retry.Again(errors.Join(errChanged, err))
	case err != nil:
		return err
	}
	s.before = kv
	return nil
}

// check returns why the member, or the shard, cannot be steered: it is not there.
func (s *steering) check(group []*mvccpb.KeyValue, count *mvccpb.KeyValue) error {
	var there []string
	for _, kv := range group {
		if m, ok := layout.DecodeMember(kv.Value); ok {
			there = append(there, m.Name)
		}
	}
	slices.Sort(there)
	if there = slices.Compact(there); !slices.Contains(there, s.says.Member) {
		return &MemberError{Name: s.name, Member: s.says.Member, Members: there}
	}
	if !s.pin {
		return nil
	}
	if count == nil {
		return ErrNoShards
	}
	if n, err := strconv.Atoi(string(count.Value)); err != nil || s.index >= n {
		return &ShardError{Name: s.name, Index: s.index, Count: n}
	}
	return nil
}
