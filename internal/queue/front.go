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

// Front is the front of a queue as a read has seen it: the entry that holds.
type Front struct {
	Entry    *mvccpb.KeyValue // nil if the queue is empty
	Token    fencing.Token    // of Entry
	Value    Value            // of Entry; only Data is set if it does not have our form
	Revision int64            // of the store, at which this was true
	Sent     time.Duration    // when the read was sent that saw Entry, by the reader's clock
}

// same reports whether two fronts have the same entry with the same value.
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

// FrontReader reads and watches the front of a queue. It writes nothing, so it
// needs a client and no session. It is safe for concurrent use.
type FrontReader struct {
	client   *clientv3.Client
	sender   *attempt.Sender
	policy   backoff.Policy // Attempt is set
	clock    func() time.Duration
	entries  string // prefix of the entries; ends in "/"
	epoch    string // key of the fencing epoch
	verbatim bool   // values are candidates' data and nothing else
	stream   followStream

	open context.Context // done when the session that it was made with is closed; never without one
}

// ReaderOptions are the options of a FrontReader.
type ReaderOptions struct {
	Kind      string               // "lock" or "election"
	Namespace string               // empty: names.DefaultNamespace
	Retry     backoff.Policy       // Attempt must be set
	Clock     func() time.Duration // elapsed time; must be set
}

// NewReader returns a reader of the queue that New makes of a name or, with foreign,
// At of a prefix.
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

// Reader returns a reader of the queue's front that uses the session's client and
// ends with the session.
func (q *Queue) Reader() (*FrontReader, error) {
	if err := q.Err(); err != nil {
		return nil, err
	}
	return &FrontReader{
		client: q.host.Client(), sender: q.host.Sender(), policy: q.host.RetryPolicy(), clock: q.host.Clock(),
		entries: q.entries, epoch: q.host.EpochKey(), verbatim: q.verbatim(),
		open: q.host.Context(),
	}, nil
}

// Clock is the clock of Front.Sent.
func (r *FrontReader) Clock() func() time.Duration { return r.clock }

// Read reads which entry holds, in one linearizable read. It returns ctx's error, holdfast.ErrClosed,
// holdfast.ErrClientClosed, or an error of etcd that no retry can mend.
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

// ended returns why nothing can be read, or nil.
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

// closedErr returns holdfast.ErrClosed, holdfast.ErrClientClosed, or nil.
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

// whileOpen returns a child of ctx that the end of the session or the client cancels, too.
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

// reason returns why a call that has failed with err ended.
func (r *FrontReader) reason(ctx context.Context, err error) error {
	if closed := r.closedErr(); closed != nil && ctx.Err() == nil {
		return closed
	}
	return err
}

// read reads the front. If the entry is the one of before, it has the token of before.
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

// valueOf returns the value of an entry. If it does not have our form, it is a
// candidate's data.
func (r *FrontReader) valueOf(kv *mvccpb.KeyValue) Value {
	if v, ok := DecodeValue(kv.Value); ok && !r.verbatim {
		return v
	}
	return Value{Data: string(kv.Value)}
}

// epochAt returns the epoch at revision rev; now is what stands at present. If the
// history is compacted it returns 0: a token that is too small shuts no holder out.
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
