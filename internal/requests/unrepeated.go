package requests

import (
	"context"
	"reflect"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// kvOf returns the client's KV, as the session uses it: etcd's client does not repeat its requests. If a proxy or a
// member answers Canceled or DeadlineExceeded before the context has ended, that client sends even a write again, and
// says nothing of the first copy. The reply to the second copy would look as if another client had done what the first
// one did.
//
// A KV that has replaced etcd's own is used as it is, also that of etcd's package namespace: then own is false.
func kvOf(cli *clientv3.Client) (kv clientv3.KV, own bool) {
	rpc := clientv3.RetryKVClient(cli)
	if remoteOf(cli.KV) != reflect.TypeOf(rpc) {
		return cli.KV, false
	}
	return clientv3.NewKVFromKVClient(unrepeated{rpc}, cli), true
}

// remoteOf returns the type of what etcd's own KV sends its requests to; nil for another KV.
func remoteOf(kv clientv3.KV) reflect.Type {
	if !IsEtcds(kv) {
		return nil
	}
	remote := reflect.ValueOf(kv).Elem().FieldByName("remote") // of 3.5 to 3.7; the tests with a proxy notice another name
	if !remote.IsValid() || remote.IsNil() {
		return nil
	}
	return remote.Elem().Type()
}

// IsEtcds reports whether kv is etcd's own KV, and no wrapper of it.
func IsEtcds(kv clientv3.KV) bool { return reflect.TypeOf(kv) == kvType }

var kvType = reflect.TypeOf(clientv3.NewKVFromKVClient(nil, nil))

// unrepeated sends each request once. It ends the context of a request when that has failed in a way after which etcd's
// client would send it again, and returns that failure instead of the end of the context.
type unrepeated struct{ pb.KVClient }

func (u unrepeated) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	return once(ctx, u.KVClient.Txn, r, opts, codes.Canceled, codes.DeadlineExceeded)
}

// Range, too: while no member leads, etcd's client would repeat each copy of a read many times a second, and so keep
// members busy that are to elect a leader.
func (u unrepeated) Range(ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	return once(ctx, u.KVClient.Range, r, opts, codes.Canceled, codes.DeadlineExceeded, codes.Unavailable)
}

// once calls send, which repeats a request after the given codes, and ends it after the first of these.
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
