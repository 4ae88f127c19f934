package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Front is what a read saw at the front of a queue: who holds.
type Front struct {
	Entry    *mvccpb.KeyValue // nil: the queue is empty
	Token    fencing.Token    // of Entry
	Value    Value            // of Entry; of one that has another form, with Data only
	Revision int64            // the store's revision at which it was so
	Sent     time.Duration    // when the read was sent that saw Entry standing, by the reader's clock
}

// same reports whether two fronts are the same entry with the same value.
func (f Front) same(other Front) bool {
	if f.Entry == nil || other.Entry == nil {
		return f.Entry == other.Entry
	}
	return f.holds(other.Entry) && f.Entry.ModRevision == other.Entry.ModRevision
}

// holds reports whether kv is the entry at the front, whatever its value.
func (f Front) holds(kv *mvccpb.KeyValue) bool {
	return f.Entry != nil && string(f.Entry.Key) == string(kv.Key) && f.Entry.CreateRevision == kv.CreateRevision
}

// FrontReader reads and watches the front of a queue. It writes nothing, so it
// needs a client and no session. It is safe for concurrent use.
type FrontReader struct {
	client   *clientv3.Client
	sender   *attempt.Sender
	policy   backoff.Policy // Attempt is set
	clock    func() time.Duration
	entries  string // entries stand under this prefix; ends in "/"
	epoch    string // the key of the fencing epoch
	verbatim bool   // values are a candidate's, as they are
	stream   followStream

	open context.Context // done when the session it was made of is closed, if any
}

// ReaderOptions of a FrontReader.
type ReaderOptions struct {
	Kind      string               // "lock" or "election"
	Namespace string               // "" is names.DefaultNamespace
	Retry     backoff.Policy       // Attempt is set
	Clock     func() time.Duration // elapsed time
}

// NewReader returns a reader of the queue that New makes of name, or with foreign
// of the one that At makes of it.
func NewReader(cli *clientv3.Client, name string, foreign bool, o ReaderOptions) (*FrontReader, error) {
	if cli == nil || cli.KV == nil || cli.Watcher == nil {
		return nil, &holdfast.ArgumentError{Argument: "cli", Reason: "is nil, or lacks its KV or Watcher"}
	}
	check := CheckName
	if foreign {
		check = checkPrefix
	}
	namespace, err := names.Namespace(o.Namespace)
	if err := errors.Join(check(o.Kind, name), err); err != nil {
		return nil, err
	}
	q := &Queue{kind: o.Kind, name: name, foreign: foreign, entries: entriesPrefix(namespace, o.Kind, name, foreign)}
	return &FrontReader{
		client: cli, sender: attempt.New(cli, o.Retry), policy: o.Retry, clock: o.Clock,
		entries: q.entries, epoch: names.EpochKey(namespace), verbatim: q.verbatim(),
		open: context.Background(),
	}, nil
}

// Reader returns a reader of the queue's front, on the session's client, that
// ends with the session.
func (q *Queue) Reader() (*FrontReader, error) {
	if err := q.Err(); err != nil {
		return nil, err
	}
	base := q.sess
	return &FrontReader{
		client: q.sess.Client(), sender: base.Sender(), policy: base.RetryPolicy(), clock: base.Clock(),
		entries: q.entries, epoch: base.EpochKey(), verbatim: q.verbatim(),
		open: base.Context(),
	}, nil
}

// Prefix is what the keys of all entries begin with.
func (q *Queue) Prefix() string { return q.entries }

// Clock is the clock of Front.Sent.
func (r *FrontReader) Clock() func() time.Duration { return r.clock }

// Read reads who holds: one linearizable read. It ends with ctx's error,
// holdfast.ErrClosed, holdfast.ErrClientClosed, or what etcd said that no retry can mend.
func (r *FrontReader) Read(ctx context.Context) (Front, error) {
	if err := r.ended(ctx); err != nil {
		return Front{}, err
	}
	open, cancel := r.whileOpen(ctx)
	defer cancel()
	f, err := r.read(open, Front{})
	if err != nil {
		return Front{}, r.reason(ctx, err)
	}
	return f, nil
}

// ended is why nothing can be read, or nil.
func (r *FrontReader) ended(ctx context.Context) error {
	switch {
	case ctx == nil:
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	case ctx.Err() != nil:
		return backoff.ContextErr(ctx)
	default:
		return r.closedErr()
	}
}

// closedErr is holdfast.ErrClosed or holdfast.ErrClientClosed, or nil.
func (r *FrontReader) closedErr() error {
	switch client := r.client.Ctx(); {
	case r.open.Err() != nil:
		return holdfast.ErrClosed
	case client != nil && client.Err() != nil:
		return holdfast.ErrClientClosed
	default:
		return nil
	}
}

// whileOpen is ctx for as long as reading has not ended.
func (r *FrontReader) whileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stops := []func() bool{context.AfterFunc(r.open, cancel)}
	if client := r.client.Ctx(); client != nil {
		stops = append(stops, context.AfterFunc(client, cancel))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// reason is why a call with ctx ended that has failed with err.
func (r *FrontReader) reason(ctx context.Context, err error) error {
	if closed := r.closedErr(); closed != nil && ctx.Err() == nil {
		return closed
	}
	return err
}

// read takes the token of an entry that was seen before from then.
func (r *FrontReader) read(ctx context.Context, before Front) (Front, error) {
	return attempt.Ask(ctx, r.sender, attempt.Read, func(ctx context.Context) (Front, error) {
		f := Front{Sent: r.clock()}
		// In one Txn, so that the epoch is that of the same revision. A Txn of
		// reads is linearizable as its reads are.
		resp, err := r.client.Txn(ctx).Then(
			clientv3.OpGet(r.entries, clientv3.WithFirstCreate()...),
			clientv3.OpGet(r.epoch),
		).Commit()
		if err != nil {
			return Front{}, err
		}
		f.Revision = resp.Header.Revision
		first := resp.Responses[0].GetResponseRange().Kvs
		if len(first) == 0 {
			return f, nil
		}
		f.Entry, f.Value = first[0], r.valueOf(first[0])
		if before.holds(f.Entry) {
			f.Token = before.Token
			return f, nil
		}
		epoch, err := r.epochAt(ctx, resp.Responses[1].GetResponseRange().Kvs, f.Entry.CreateRevision)
		if err != nil {
			return Front{}, err
		}
		f.Token, err = fencing.NewToken(epoch, f.Entry.CreateRevision)
		return f, err
	})
}

// valueOf is what an entry says; one of another form is a candidate's value as it
// is.
func (r *FrontReader) valueOf(kv *mvccpb.KeyValue) Value {
	if v, ok := DecodeValue(kv.Value); ok && !r.verbatim {
		return v
	}
	return Value{Data: string(kv.Value)}
}

// epochAt is the epoch that was in force at rev, given what stands now. Where
// the history that far back is compacted it is given as 0: a token that is too
// small shuts nobody out.
func (r *FrontReader) epochAt(ctx context.Context, now []*mvccpb.KeyValue, rev int64) (int64, error) {
	if len(now) == 0 || now[0].CreateRevision > rev {
		return 0, nil
	}
	kv := now[0]
	if kv.ModRevision > rev {
		then, err := r.client.Get(ctx, r.epoch, clientv3.WithRev(rev))
		if errors.Is(err, rpctypes.ErrCompacted) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		if len(then.Kvs) == 0 {
			return 0, nil
		}
		kv = then.Kvs[0]
	}
	epoch, err := strconv.ParseInt(string(kv.Value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("fencing epoch at %s is not a number: %.64q", names.Quote(r.epoch), kv.Value)
	}
	return epoch, nil
}
