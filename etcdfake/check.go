package etcdfake

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// maxTxnOps is etcd's default for --max-txn-ops.
const maxTxnOps = 128

// This file refuses requests that etcd refuses without a look at the store: see its server/etcdserver/api/v3rpc/key.go.

func validRange(r *pb.RangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if _, ok := pb.RangeRequest_SortOrder_name[int32(r.SortOrder)]; !ok {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	if _, ok := pb.RangeRequest_SortTarget_name[int32(r.SortTarget)]; !ok {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

func validPut(r *pb.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) != 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

func validDelete(r *pb.DeleteRangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

// validTxn checks a Txn with at most maxOps operations at its level.
func validTxn(r *pb.TxnRequest, maxOps int) error {
	n := max(len(r.Compare), len(r.Success), len(r.Failure))
	if n > maxOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if len(c.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if err := validOp(op, maxOps-n); err != nil {
				return err
			}
		}
	}
	return nil
}

func validOp(op *pb.RequestOp, maxOps int) error {
	switch o := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		return validRange(o.RequestRange)
	case *pb.RequestOp_RequestPut:
		return validPut(o.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return validDelete(o.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return validTxn(o.RequestTxn, maxOps)
	}
	return rpctypes.ErrGRPCKeyNotFound
}

// distinct refuses operations that put a key twice, or put and delete it. Of the two branches of a nested Txn only one
// runs, so the same key may be in both. It returns all keys that are put and ranges that are deleted.
func distinct(ops []*pb.RequestOp) (puts map[string]bool, deletes []span, err error) {
	puts = make(map[string]bool)
	for _, op := range ops {
		if d := op.GetRequestDeleteRange(); d != nil {
			deletes = append(deletes, span{d.Key, d.RangeEnd})
		}
	}
	add := func(key string) error {
		if puts[key] || deleted(deletes, key) {
			return rpctypes.ErrGRPCDuplicateKey
		}
		puts[key] = true
		return nil
	}
	for _, op := range ops {
		t := op.GetRequestTxn()
		if t == nil {
			continue
		}
		success, successDeletes, err := distinct(t.Success)
		if err != nil {
			return nil, nil, err
		}
		failure, failureDeletes, err := distinct(t.Failure)
		if err != nil {
			return nil, nil, err
		}
		for key := range success {
			if err := add(key); err != nil {
				return nil, nil, err
			}
		}
		for key := range failure {
			if success[key] {
				continue
			}
			if err := add(key); err != nil {
				return nil, nil, err
			}
		}
		deletes = append(deletes, append(successDeletes, failureDeletes...)...)
	}
	for _, op := range ops {
		if p := op.GetRequestPut(); p != nil {
			if err := add(string(p.Key)); err != nil {
				return nil, nil, err
			}
		}
	}
	return puts, deletes, nil
}

// deleted reports whether one of the deletions covers key. Like etcd it overlooks open-ended deletions: here, etcd
// takes their end "\x00" for an ordinary key.
func deleted(deletes []span, key string) bool {
	for _, in := range deletes {
		if !in.open() && in.contains([]byte(key)) {
			return true
		}
	}
	return false
}
