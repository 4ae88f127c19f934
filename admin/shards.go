package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// ErrNoShards: no program has ever run shards of that name, so etcd has no number of them.
var ErrNoShards = errors.New("there are no shards of that name: the first program that runs them puts their number")

// MembersError says that the number of shards is not changed because members run.
type MembersError struct {
	Name    string   // of the shards
	Members []string // their names, sorted
	Entries []string // keys in etcd of shards that are owned or waited for, also without a member
}

func (e *MembersError) Error() string {
	who := fmt.Sprintf("members run: %q", e.Members)
	if len(e.Members) == 0 && len(e.Entries) > 0 {
		who = fmt.Sprintf("%d shards are owned, such as by the entry %s", len(e.Entries), names.Quote(e.Entries[0]))
	}
	return fmt.Sprintf("the number of shards %s is not changed while %s; stop their processes, and wait until their "+
		"leases have ended", names.Quote(e.Name), who)
}

// ResizeShards changes how many shards of a name there are (see package shard) to n, 1 to 16,384, and returns how many
// there were. It does so only while no member runs and no shard is owned, which it compares in the same Txn. If an
// owner went without a release in the last minutes, it may not have been told yet: then ResizeShards first waits for
// its LockDelay and 6 s, 8 s by default. A member that begins or comes back afterwards with another number ends
// with a *shard.CountError, before it calls a function.
//
// Errors: *MembersError; ErrNoShards; *holdfast.ArgumentError and *holdfast.NameError before anything is sent; ctx's,
// joined with that of the last attempt: then the number may have been changed, or be changed later, if no member runs
// by then; etcd's where a retry cannot help. It may be repeated. The role shards is enough.
func (c *Client) ResizeShards(ctx context.Context, name string, n int) (before int, err error) {
	if err := c.usable(ctx); err != nil {
		return 0, err
	}
	at, err := c.find(holdfast.KindShard, name)
	if err != nil {
		return 0, err
	}
	if n < 1 || n > layout.MaxCount {
		reason := fmt.Sprintf("is not between 1 and %d", layout.MaxCount)
		return 0, &holdfast.ArgumentError{Argument: "n", Reason: reason}
	}
	r := resizing{c, at, n, 0}
	if err := backoff.Retry(ctx, c.policy, r.try); err != nil {
		return 0, fmt.Errorf("resize shards %s: %w", names.Quote(name), err)
	}
	return r.before, nil
}

// resizing is one call of ResizeShards.
type resizing struct {
	*Client
	at     layout.Keyspace
	n      int
	before int // the number that was read first
}

// try reads all that stands about the shards, and puts the number if nothing of that has changed since. A copy that is
// late finds that it has: the number.
func (r *resizing) try(ctx context.Context) error {
	shards := layout.Names(r.namespace, r.at.Kind) + r.at.Name + "/"
	members, end := layout.Members(r.namespace, layout.ShardGroup(r.at.Name)).MemberKeys()
	of := requests.Ops{}
	count := of.Add(clientv3.OpGet(r.at.CountKey()))
	group := of.Add(clientv3.OpGet(members, clientv3.WithRange(end)))
	all := of.Add(clientv3.OpGet(shards, clientv3.WithPrefix()))
	reply, err := r.read(ctx, of...)
	if err != nil {
		return err
	}
	kv := reply.First(count)
	if kv == nil {
		return retry.Final(ErrNoShards)
	}
	now, _ := strconv.Atoi(string(kv.Value)) // anything else is replaced
	if r.before == 0 {
		r.before = now
	}
	if now == r.n {
		return nil
	}
	running := &MembersError{Name: r.at.Name}
	for _, kv := range reply.Range(group).Kvs {
		m, _ := layout.DecodeMember(kv.Value)
		running.Members = append(running.Members, m.Name)
	}
	for _, kv := range reply.Range(all).Kvs {
		if entry, isEntry := layout.Of(r.namespace, string(kv.Key)); isEntry {
			if _, err := strconv.Atoi(strings.TrimPrefix(entry.Name, r.at.Name+"/")); err == nil {
				running.Entries = append(running.Entries, string(kv.Key))
			}
		}
	}
	if len(running.Members)+len(running.Entries) > 0 {
		slices.Sort(running.Members)
		running.Members = slices.Compact(running.Members)
		return retry.Final(running)
	}
	select {
	case <-time.After(untold(shards, reply.Range(all).Kvs)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return r.put(ctx, reply.Header.Revision, shards, members, end)
}

// untold returns for how long an owner may not know that it has lost its shard, by the keys of shards without entries:
// the claims that stand are dead.
//
//	rev 10: A owns orders/0 of 1 · rev 20: A's lease is revoked, and its entry and its member's key go
//	rev 21: the number is 2 · B owns orders/1, while A, which is told at rev 22, still serves the same tenants
//	→ the resize waits until A has been told, and then compares that nothing has changed since rev 20
func untold(shards string, kvs []*mvccpb.KeyValue) (longest time.Duration) {
	for _, kv := range kvs {
		index, part, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), shards), "/")
		if _, err := strconv.Atoi(index); err == nil && strings.HasPrefix(part, "@claim/") {
			says := layout.DecodeClaim(kv.Value)
			longest = max(longest, says.LockDelay, says.ToldWithin)
		}
	}
	return longest
}

var errChanged = errors.New("another client has written meanwhile")

func (r *resizing) put(ctx context.Context, read int64, shards, members, end string) error {
	unchanged := func(from, end string) clientv3.Cmp {
		return clientv3.Compare(clientv3.ModRevision(from), "<", read+1).WithRange(end)
	}
	reply, err := requests.Txn{
		If:   []clientv3.Cmp{unchanged(shards, clientv3.GetPrefixRangeEnd(shards)), unchanged(members, end)},
		Then: []clientv3.Op{clientv3.OpPut(r.at.CountKey(), strconv.Itoa(r.n))},
	}.Once(ctx, r.sender, requests.Write)
	switch {
	case err != nil && etcderr.Classify(err) == etcderr.Unknown, err == nil && !reply.Succeeded:
		return retry.Again(errors.Join(errChanged, err))
	default:
		return err
	}
}
