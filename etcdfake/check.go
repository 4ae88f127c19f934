package etcdfake

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// maxTxnOps is etcd's default for --max-txn-ops.
const maxTxnOps = 128

// What etcd refuses before it looks at the store, as in its
// server/etcdserver/api/v3rpc/key.go.

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

// validTxn checks a Txn that may have so many operations at its level.
func validTxn(r *pb.TxnRequest, most int) error {
	n := max(len(r.Compare), len(r.Success), len(r.Failure))
	if n > most {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if len(c.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if err := validOp(op, most-n); err != nil {
				return err
			}
		}
	}
	return nil
}

func validOp(op *pb.RequestOp, most int) error {
	switch o := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		return validRange(o.RequestRange)
	case *pb.RequestOp_RequestPut:
		return validPut(o.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return validDelete(o.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return validTxn(o.RequestTxn, most)
	}
	return rpctypes.ErrGRPCKeyNotFound
}

// distinct refuses a list of operations that puts a key twice, or puts and
// deletes it. Branches of which only one runs do not count against each other.
// It returns what is put and deleted anywhere below.
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
		then, thenDeletes, err := distinct(t.Success)
		if err != nil {
			return nil, nil, err
		}
		els, elseDeletes, err := distinct(t.Failure)
		if err != nil {
			return nil, nil, err
		}
		for key := range then {
			if err := add(key); err != nil {
				return nil, nil, err
			}
		}
		for key := range els {
			if then[key] {
				continue
			}
			if err := add(key); err != nil {
				return nil, nil, err
			}
		}
		deletes = append(deletes, append(thenDeletes, elseDeletes...)...)
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

// deleted does not see deletions of everything from some key on, because etcd
// does not: it takes their end, "\x00", for a key like any other here.
func deleted(deletes []span, key string) bool {
	for _, in := range deletes {
		if !in.open() && in.contains([]byte(key)) {
			return true
		}
	}
	return false
}
