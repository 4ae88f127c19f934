package queuetest

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// RefusingKV refuses requests as etcd does when its store is full or a role lacks a permission.
type RefusingKV struct {
	pb.KVClient

	mu    sync.Mutex // protects judge
	judge func(ops []clientv3.Op) error
}

// Refuse has judge decide which requests are refused; nil: none.
func (kv *RefusingKV) Refuse(judge func(ops []clientv3.Op) error) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.judge = judge
}

func (kv *RefusingKV) verdict(ops []clientv3.Op) error {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.judge == nil {
		return nil
	}
	return kv.judge(ops)
}

// Put implements pb.KVClient.
func (kv *RefusingKV) Put(ctx context.Context, r *pb.PutRequest, opts ...grpc.CallOption) (*pb.PutResponse, error) {
	if err := kv.verdict([]clientv3.Op{put(r)}); err != nil {
		return nil, err
	}
	return kv.KVClient.Put(ctx, r, opts...)
}

// Txn implements pb.KVClient.
func (kv *RefusingKV) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	if err := kv.verdict(flat(r)); err != nil {
		return nil, err
	}
	return kv.KVClient.Txn(ctx, r, opts...)
}

func put(r *pb.PutRequest) clientv3.Op {
	return clientv3.OpPut(string(r.Key), string(r.Value), clientv3.WithLease(clientv3.LeaseID(r.Lease)))
}

// flat returns the operations of a Txn and of the Txns in it, with their keys and values.
func flat(r *pb.TxnRequest) (all []clientv3.Op) {
	for _, op := range append(r.Success[:len(r.Success):len(r.Success)], r.Failure...) {
		switch {
		case op.GetRequestPut() != nil:
			all = append(all, put(op.GetRequestPut()))
		case op.GetRequestRange() != nil:
			r := op.GetRequestRange()
			all = append(all, clientv3.OpGet(string(r.Key), clientv3.WithRange(string(r.RangeEnd))))
		case op.GetRequestDeleteRange() != nil:
			all = append(all, clientv3.OpDelete(string(op.GetRequestDeleteRange().Key)))
		default:
			all = append(all, flat(op.GetRequestTxn())...)
		}
	}
	return all
}
