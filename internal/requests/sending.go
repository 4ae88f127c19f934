// Package requests gets a request to a member of the cluster that replies, and says what became of it.
//
// etcd's client sends each request to the next endpoint in turn. If that member hangs, the request hangs, although the
// others would answer at once; and the client keeps the member as long as it answers pings. So if no reply comes after
// a pause, [Once] sends the request again beside the first, unless it must not be carried out twice:
//
//	0 ms    a read goes to B, and B hangs. Replies take 20 ms now
//	150 ms  a round: three copies go to C, A and B. C and A reply
//
// A round has a copy for each endpoint, sent at the same moment. The client's round robin gives requests of a moment to
// different endpoints, so each healthy member gets a copy. Copies sent after each other have no such guarantee: other
// traffic can move the round robin until each of them goes to the hung member. A round also leaves the round robin
// where a single request would have left it.
//
// Copies must not keep a slow etcd slow. So the pause before a round is twice what replies take now, and rounds pay for
// themselves: see budget. A request without a waiting caller is sent once.
//
// sending.go has the calls, race.go the copies of a request, pace.go the pauses between them and who pays. txns.go
// sends Txns, several in one request if many are due, and says what became of each. docs/performance.md promises: many
// free locks at once are faster than with etcd's own package. Batches make them so: with each Txn sent alone, 256 at
// once took twice as long as there, and four times as long as in batches.
package requests

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Sender sends the requests of a session or a reader. It is safe for concurrent use.
type Sender struct {
	client  *clientv3.Client
	kv      clientv3.KV
	policy  backoff.Policy
	own     bool                // the client's KV was not replaced: none but the sender repeats a request
	latest  [kinds]atomic.Int64 // how long the latest reply took; an election must not slow down what comes after it
	callers budget              // of Read and Write
	itself  budget              // of the rest
}

// NewSender returns a Sender. policy has the pauses of [Ask].
func NewSender(cli *clientv3.Client, policy backoff.Policy) *Sender {
	kv, own := kvOf(cli)
	s := &Sender{client: cli, kv: kv, own: own, policy: policy}
	s.callers = budget{rounds: callerRounds, price: callerPrice, endpoints: s.endpoints, pause: firstByTime}
	s.itself = budget{rounds: ownRounds, price: ownPrice, endpoints: s.endpoints}
	return s
}

// Txn begins a Txn. Only the Sender repeats it, unless the client's KV was replaced.
func (s *Sender) Txn(ctx context.Context) clientv3.Txn { return s.kv.Txn(ctx) }

// RepeatsUnnoticed reports whether a Txn may have been sent twice, because the client's KV was replaced: then a refusal
// may be the reply to the second copy, and the first may have been carried out.
func (s *Sender) RepeatsUnnoticed() bool { return !s.own }

// Get asks by a linearizable read, as [Ask] does.
func (s *Sender) Get(ctx context.Context, op clientv3.Op) (*clientv3.GetResponse, error) {
	return Ask(ctx, s, Read, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.Read(ctx, op)
	})
}

// Read sends one linearizable read once, unless the client's KV was replaced.
func (s *Sender) Read(ctx context.Context, op clientv3.Op) (*clientv3.GetResponse, error) {
	resp, err := s.kv.Do(ctx, op)
	return resp.Get(), err
}

func (s *Sender) budgetOf(k Kind) *budget {
	if k.isOwn() {
		return &s.itself
	}
	return &s.callers
}

// endpoints returns how many copies a round has.
func (s *Sender) endpoints() int {
	return max(1, len(s.client.Endpoints())) // a client without endpoints still has its connection
}

// Once calls op until a call has a reply: first on the caller's goroutine, then, after each pause, beside it, once for
// each endpoint if the budget allows it; never again for [Unhurried]. The first reply wins, and Once cancels the other
// calls. A reply is a nil error, or an error by which etcd has decided the request for good: refused permission, a lost
// lease, a malformed request. Once returns another error when no call is left in flight. It does not pause then, so a
// loop around it has to; see [Ask].
//
// Once ends with ctx, and its calls before it; an unhurried request also ends after 5 s. A slow disk may take seconds
// for each write, so nothing shorter cuts a write off, unless the client's KV was replaced: see [NewSender].
//
// op runs on several goroutines at once, and must return its result by value only, soon after the end of its context.
// That context requires a leader, and sends no deadline to the server.
//
// open reports whether the outcome of some call is unknown: its request may have been carried out, or may be at any
// later time. open may be true although err is nil: another call had a reply first. The class of err says nothing about
// the other calls.
func Once[T any](
	ctx context.Context, s *Sender, k Kind, op func(ctx context.Context) (T, error),
) (v T, open bool, err error) {
	return OnceWithin(ctx, s, k, nil, op)
}

// OnceWithin is Once for a request with a limited use, such as a renewal: left returns the time that is left for it. A
// nil left is no limit.
func OnceWithin[T any](
	ctx context.Context, s *Sender, k Kind, left func() time.Duration, op func(ctx context.Context) (T, error),
) (v T, open bool, err error) {
	if err := retry.ContextErr(ctx); err != nil {
		return v, false, err
	}
	if k == Unhurried {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longest) // its member may hang
		defer cancel()
	}
	r := newRace(ctx, s, k, s.pauses(k, left), op)
	defer r.end()
	// Without a winner nothing else cancels the context of the race, and it would stay a child of the lease's.
	defer r.cancel() // before r.end, if op panics
	r.send(false)
	r.end()
	o := r.outcome
	if o.won {
		return o.v, o.pending, o.err
	}
	switch ended := retry.ContextErr(ctx); {
	case ended == nil:
		return o.v, o.pending, o.err
	case errors.Is(o.err, context.Canceled) || errors.Is(o.err, context.DeadlineExceeded):
		return o.v, o.pending, ended
	default:
		return o.v, o.pending, fmt.Errorf("%w; last error: %w", ended, o.err)
	}
}

// Ask is Once, repeated with the policy's pauses while its error is retryable. op must be a read, or compare what it
// changes: a copy of it may be carried out later.
func Ask[T any](ctx context.Context, s *Sender, k Kind, op func(ctx context.Context) (T, error)) (T, error) {
	var v T
	err := backoff.Retry(ctx, s.policy, func(ctx context.Context) (err error) {
		if v, _, err = OnceWithin(ctx, s, k, nil, op); err != nil {
			err = retry.WithConnection(s.client.ActiveConnection(), err)
		}
		return err
	})
	return v, err
}

// kvOf returns a KV on which etcd's client repeats no request. A KV of etcd's package namespace gets that inside. If
// the client's KV was replaced by another one, kvOf returns that, and own is false.
func kvOf(cli *clientv3.Client) (kv clientv3.KV, own bool) { return unrepeatedIn(cli, cli.KV) }

func unrepeatedIn(cli *clientv3.Client, kv clientv3.KV) (_ clientv3.KV, own bool) {
	if IsEtcds(kv) {
		// By itself etcd's client sends even a write again if a proxy or a member answers Canceled or DeadlineExceeded
		// before the context has ended:
		//
		//	rev 20  the first copy puts the key; a proxy answers Canceled
		//	        the second copy, unnoticed, finds the key: as if another client had put it
		if rpc := clientv3.RetryKVClient(cli); remoteOf(kv) == reflect.TypeOf(rpc) { // no other one repeats
			kv = clientv3.NewKVFromKVClient(unrepeated{rpc}, cli)
		}
		return kv, true
	}
	outer := reflect.Indirect(reflect.ValueOf(kv))
	if !outer.IsValid() || outer.Type().PkgPath() != "go.etcd.io/etcd/client/v3/namespace" {
		return kv, false
	}
	inside := outer.FieldByName("KV") // of 3.5 to 3.7; a test notices another name
	inner, own := unrepeatedIn(cli, inside.Interface().(clientv3.KV))
	if !own {
		return kv, false
	}
	with := reflect.New(outer.Type()) // a copy, with the same prefix
	with.Elem().Set(outer)
	with.Elem().FieldByName("KV").Set(reflect.ValueOf(inner))
	return with.Interface().(clientv3.KV), true
}

// remoteOf returns the type to which etcd's own KV passes its requests; nil if it is not known.
func remoteOf(kv clientv3.KV) reflect.Type {
	remote := reflect.ValueOf(kv).Elem().FieldByName("remote") // of 3.5 to 3.7; the tests with a proxy notice another name
	if !remote.IsValid() || remote.IsNil() {
		return nil
	}
	return remote.Elem().Type()
}

// IsEtcds reports whether kv is etcd's own KV, without a wrapper.
func IsEtcds(kv clientv3.KV) bool { return reflect.TypeOf(kv) == kvType }

var kvType = reflect.TypeOf(clientv3.NewKVFromKVClient(nil, nil))

// unrepeated sends each request once: an error that would make etcd's client send it again ends its context.
type unrepeated struct{ pb.KVClient }

func (u unrepeated) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	return Unrepeated(ctx, u.KVClient.Txn, r, opts...)
}

func (u unrepeated) Range(ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	// While no member leads, etcd's client would repeat each copy of a read many times a second, and so keep members
	// busy that are to elect a leader.
	return once(ctx, u.KVClient.Range, r, opts, codes.Canceled, codes.DeadlineExceeded, codes.Unavailable)
}

// Unrepeated calls send, an RPC of etcd's client that changes something, and has the request sent once.
func Unrepeated[Q, R any](
	ctx context.Context, send func(context.Context, Q, ...grpc.CallOption) (R, error), r Q, opts ...grpc.CallOption,
) (R, error) {
	return once(ctx, send, r, opts, codes.Canceled, codes.DeadlineExceeded)
}

// once calls send, which repeats a request after the given codes, and ends it after the first of these. It returns that
// failure, not the end of the context.
func once[Q, R any](
	ctx context.Context, send func(context.Context, Q, ...grpc.CallOption) (R, error), r Q, opts []grpc.CallOption,
	repeated ...codes.Code,
) (R, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failure error
	finished := func(err error) {
		if err != nil && slices.Contains(repeated, status.Code(err)) {
			failure = err
			cancel()
		}
	}
	resp, err := send(ctx, r, append(opts[:len(opts):len(opts)], grpc.OnFinish(finished))...)
	if err != nil && failure != nil {
		err = failure
	}
	return resp, err
}

// Patience bounds what waits no longer for a reply, such as a poll of what is held and, if the client's KV was
// replaced, each send of a write. After 5 s a member may answer DeadlineExceeded: then etcd's client sends the write
// again, unnoticed.
const Patience = 4 * time.Second
