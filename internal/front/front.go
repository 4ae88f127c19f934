// Package front reads and watches who holds, or leads, without a session.
package front

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/watching"
)

// Front is the front of a queue as a read has seen it: the entry of the holder.
type Front struct {
	Entry    *mvccpb.KeyValue // nil if none holds
	Token    holdfast.Token   // of Entry
	Value    layout.Value     // of Entry; only Data is set if it does not have our form
	Revision int64            // of the store, when this was true
	Sent     time.Duration    // when the read of Entry was sent, by the monitor's clock

	// Behind is the key of the oldest dead claim, for which the first entry waits, if there is one. Then none holds:
	//
	//	rev 10  A puts, and holds
	//	rev 12  B puts, and waits
	//	rev 15  A's lease expires. Its claim stands: Behind is that, Entry is nil
	//	rev 16  B deletes A's claim after the lock delay: Entry is B's
	Behind string
}

// same reports whether in two fronts the same entry holds, with the same value.
func (f Front) same(other Front) bool {
	if other.Entry == nil {
		return f.Entry == nil
	}
	return f.holds(other.Entry) && f.Entry.ModRevision == other.Entry.ModRevision
}

// holds reports whether kv is the entry at the front, whatever its value.
func (f Front) holds(kv *mvccpb.KeyValue) bool {
	return f.Entry != nil && string(f.Entry.Key) == string(kv.Key) && f.Entry.CreateRevision == kv.CreateRevision
}

// Monitor reads and watches the front of a queue. It writes nothing, so it needs a client and no session. A test may
// give it a client without clientv3.New: its Ctx is nil, and nothing closes it. A Monitor is safe for concurrent use.
type Monitor struct {
	env     *lease.Env
	at      layout.Keyspace
	epoch   string           // key of the fencing epoch
	streams watching.Streams // of its watches; creating those of others would delay them
}

// New returns a monitor of a queue's front with a client alone. clock is elapsed time.
func New(
	cli *clientv3.Client, at layout.Keyspace, namespace string, policy backoff.Policy, clock func() time.Duration,
) *Monitor {
	env := lease.Alone(cli, policy)
	env.Namespace, env.Clock = namespace, clock
	return Of(env, at)
}

// Of returns a monitor of a queue's front with the session's client. It ends with the session.
func Of(env *lease.Env, at layout.Keyspace) *Monitor {
	return &Monitor{env: env, at: at, epoch: names.EpochKey(env.Namespace)}
}

// Clock is the clock of Front.Sent.
func (r *Monitor) Clock() func() time.Duration { return r.env.Clock }

// Read reads which entry holds, in one linearizable read. It returns ctx's error, holdfast.ErrClosed,
// holdfast.ErrClientClosed, or an error of etcd beyond retry.
func (r *Monitor) Read(ctx context.Context) (Front, error) {
	open, cancel := lease.WithSession(ctx, r.env)
	defer cancel()
	f, err := r.read(open, Front{})
	return f, lease.EndedBy(ctx, r.env, err)
}

// read reads the front. If the entry is still that of before, read keeps its token.
func (r *Monitor) read(ctx context.Context, before Front) (Front, error) {
	return requests.Ask(ctx, r.env.Sender, requests.Read, func(ctx context.Context) (Front, error) {
		f := Front{Sent: r.env.Clock()}
		resp, err := r.ask(ctx)
		if err != nil {
			return Front{}, err
		}
		f.Revision = resp.Header.Revision
		var oldest []*mvccpb.KeyValue
		for _, each := range resp.Responses[1:] {
			oldest = append(oldest, each.GetResponseRange().GetKvs()...)
		}
		first, claim := r.first(oldest)
		switch {
		case claim != nil:
			f.Behind = string(claim.Key)
			return f, nil
		case first == nil:
			return f, nil
		}
		f.Entry, f.Value = first, r.valueOf(first)
		if before.holds(f.Entry) {
			f.Token = before.Token
			return f, nil
		}
		f.Token, err = tokenOf(first, resp.Responses[0].GetResponseRange().Kvs)
		return f, err
	})
}

// ask reads the epoch and the oldest keys of entries and claims in one Txn, so at one revision. A Txn of reads is
// linearizable as its reads are.
//
// The entries and the claims of a name are one range. Its two oldest keys tell all: an entry and its claim are equally
// old, so the holder's entry is among the two, and a claim without its entry is dead.
//
// The claims below a foreign prefix are elsewhere. A role without the claims sees a new holder a lock delay early.
func (r *Monitor) ask(ctx context.Context) (*clientv3.TxnResponse, error) {
	epoch := clientv3.OpGet(r.epoch)
	if from, end := r.followed(); !r.at.Foreign {
		return r.env.Client.Txn(ctx).Then(epoch,
			clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(2), oldestFirst)).Commit()
	}
	entry := clientv3.OpGet(r.at.Entries, clientv3.WithFirstCreate()...)
	claim := clientv3.OpGet(r.at.Claims, append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...)
	resp, err := r.env.Client.Txn(ctx).Then(epoch, entry, claim).Commit()
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return r.env.Client.Txn(ctx).Then(epoch, entry).Commit()
	}
	return resp, err
}

var oldestFirst = clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)

// first returns the first entry, out of the oldest keys, and the dead claim ahead of it: until that has gone, it does
// not hold.
func (r *Monitor) first(oldest []*mvccpb.KeyValue) (entry, claim *mvccpb.KeyValue) {
	for _, kv := range oldest {
		switch {
		case r.at.IsClaim(string(kv.Key)):
			if claim == nil || kv.CreateRevision < claim.CreateRevision {
				claim = kv
			}
		case entry == nil || kv.CreateRevision < entry.CreateRevision:
			entry = kv
		}
	}
	if entry == nil || claim == nil {
		return entry, claim
	}
	_, ours := layout.LeaseOf(string(entry.Key)) // etcd's own clients know no delay, and hold at once
	if claim.CreateRevision >= entry.CreateRevision || !ours {
		return entry, nil
	}
	return entry, claim
}

// followed returns the range where a change may be about the front: the entries, and of a name the claims right behind
// them.
func (r *Monitor) followed() (from, end string) {
	from, end = r.at.All()
	if !r.at.Foreign {
		_, end = r.at.AllClaims()
	}
	return from, end
}

// valueOf returns the value of an entry. If it does not have our form, it is a candidate's data.
func (r *Monitor) valueOf(kv *mvccpb.KeyValue) layout.Value {
	if v, ok := layout.DecodeValue(kv.Value); ok && !r.at.Verbatim {
		return v
	}
	return layout.Value{Data: string(kv.Value)}
}

// tokenOf returns the token of an entry, by what a read of the epoch's key has found. If the epoch was raised after the
// entry was put, the token has none: too small a token shuts no holder out.
func tokenOf(entry *mvccpb.KeyValue, epoch []*mvccpb.KeyValue) (holdfast.Token, error) {
	token, err := layout.Token(epoch, entry.CreateRevision)
	if errors.Is(err, layout.ErrEpochMoved) {
		return holdfast.NewToken(0, entry.CreateRevision)
	}
	return token, err
}
