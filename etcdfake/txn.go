package etcdfake

import (
	"bytes"
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// This file follows etcd's server/etcdserver/txn step by step. All of it runs under Server.mu.

// checkRange returns why etcd would refuse a read; nil if it would not.
func (s *Server) checkRange(r *pb.RangeRequest) error {
	switch {
	case r.Revision > s.rev:
		return rpctypes.ErrGRPCFutureRev
	case r.Revision > 0 && r.Revision < s.compacted:
		return rpctypes.ErrGRPCCompacted
	}
	return nil
}

// read serves a range request. The current revision is now, which in a transaction includes its own changes.
func (s *Server) read(r *pb.RangeRequest, now int64) *pb.RangeResponse {
	rev := now
	if r.Revision > 0 {
		rev = r.Revision
	}
	kvs := s.at(span{r.Key, r.RangeEnd}, rev)
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: now}, Count: int64(len(kvs))}
	if r.CountOnly {
		return resp
	}
	kvs = slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		return outside(kv.ModRevision, r.MinModRevision, r.MaxModRevision) ||
			outside(kv.CreateRevision, r.MinCreateRevision, r.MaxCreateRevision)
	})
	filtered := r.MinModRevision|r.MaxModRevision|r.MinCreateRevision|r.MaxCreateRevision != 0
	if r.Limit > 0 && r.SortOrder == pb.RangeRequest_NONE && !filtered {
		// Without an order etcd takes the first keys, one more than the limit to see whether there are more, and sorts
		// only those by the target.
		kvs = kvs[:min(int64(len(kvs)), r.Limit+1)]
	}
	if order := sorting[r.SortTarget]; r.SortOrder == pb.RangeRequest_DESCEND {
		slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) int { return order(b, a) })
	} else if r.SortTarget != pb.RangeRequest_KEY {
		slices.SortStableFunc(kvs, order)
	}
	if r.Limit > 0 && int64(len(kvs)) > r.Limit {
		kvs, resp.More = kvs[:r.Limit], true
	}
	resp.Kvs = make([]*mvccpb.KeyValue, len(kvs))
	for i, kv := range kvs {
		resp.Kvs[i] = clone(kv)
		if r.KeysOnly {
			resp.Kvs[i].Value = nil
			if r.SortTarget != pb.RangeRequest_VALUE {
				resp.Kvs[i].Lease = 0 // etcd 3.7 replies from its index, which has no leases
			}
		}
	}
	return resp
}

// outside reports whether rev is outside a range; a max of 0 is no limit.
func outside(rev, min, max int64) bool { return rev < min || max != 0 && rev > max }

var sorting = map[pb.RangeRequest_SortTarget]func(a, b *mvccpb.KeyValue) int{
	pb.RangeRequest_KEY:     func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) },
	pb.RangeRequest_VERSION: func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.Version, b.Version) },
	pb.RangeRequest_CREATE:  func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) },
	pb.RangeRequest_MOD:     func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) },
	pb.RangeRequest_VALUE:   func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Value, b.Value) },
}

// checkPut returns why etcd would refuse a put; nil if it would not.
func (s *Server) checkPut(r *pb.PutRequest) error {
	if r.Lease != 0 && s.leases[r.Lease] == nil {
		return rpctypes.ErrGRPCLeaseNotFound
	}
	if (r.IgnoreValue || r.IgnoreLease) && s.version(string(r.Key), s.rev) == nil {
		return rpctypes.ErrGRPCKeyNotFound
	}
	return nil
}

func (w *write) applyPut(r *pb.PutRequest) *pb.PutResponse {
	resp := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: w.rev + 1}}
	prev := w.version(string(r.Key), w.rev+1)
	value, lease := r.Value, r.Lease
	if r.IgnoreValue {
		value = prev.Value
	}
	if r.IgnoreLease {
		lease = prev.Lease
	}
	if r.PrevKv {
		resp.PrevKv = clone(prev)
	}
	w.put(r.Key, value, lease)
	return resp
}

func (w *write) applyDelete(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	resp := &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{}}
	in := span{r.Key, r.RangeEnd}
	if r.PrevKv {
		resp.PrevKvs = []*mvccpb.KeyValue{}
		for _, kv := range w.at(in, w.rev+1) {
			resp.PrevKvs = append(resp.PrevKvs, clone(kv))
		}
	}
	resp.Deleted = w.remove(in)
	resp.Header.Revision = w.now()
	return resp
}

// branch is a Txn after its comparisons. All of them, nested ones too, are evaluated before the first change.
type branch struct {
	succeeded bool
	ops       []*pb.RequestOp
	nested    map[int]*branch // by index in ops
}

func (s *Server) choose(r *pb.TxnRequest) *branch {
	b := &branch{succeeded: true, ops: r.Success, nested: make(map[int]*branch)}
	for _, c := range r.Compare {
		if !s.compare(c) {
			b.succeeded, b.ops = false, r.Failure
			break
		}
	}
	for i, op := range b.ops {
		if t := op.GetRequestTxn(); t != nil {
			b.nested[i] = s.choose(t)
		}
	}
	return b
}

// check returns why one of the operations would fail, before any of them has changed the store.
func (s *Server) check(b *branch) (err error) {
	for i, op := range b.ops {
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			err = s.checkRange(o.RequestRange)
		case *pb.RequestOp_RequestPut:
			err = s.checkPut(o.RequestPut)
		case *pb.RequestOp_RequestTxn:
			err = s.check(b.nested[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) apply(w *write, b *branch) *pb.TxnResponse {
	resp := &pb.TxnResponse{
		Header: &pb.ResponseHeader{}, Succeeded: b.succeeded, Responses: make([]*pb.ResponseOp, len(b.ops)),
	}
	for i, op := range b.ops {
		r := &pb.ResponseOp{}
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			r.Response = &pb.ResponseOp_ResponseRange{ResponseRange: s.read(o.RequestRange, w.now())}
		case *pb.RequestOp_RequestPut:
			r.Response = &pb.ResponseOp_ResponsePut{ResponsePut: w.applyPut(o.RequestPut)}
		case *pb.RequestOp_RequestDeleteRange:
			r.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: w.applyDelete(o.RequestDeleteRange)}
		case *pb.RequestOp_RequestTxn:
			r.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: s.apply(w, b.nested[i])}
		}
		resp.Responses[i] = r
	}
	return resp
}

// compare evaluates a comparison. For a range it must hold for every key; an empty range counts as one key that does
// not exist.
func (s *Server) compare(c *pb.Compare) bool {
	kvs := s.at(span{c.Key, c.RangeEnd}, s.rev)
	if len(kvs) == 0 {
		return c.Target != pb.Compare_VALUE && holds(c, &mvccpb.KeyValue{})
	}
	return !slices.ContainsFunc(kvs, func(kv *mvccpb.KeyValue) bool { return !holds(c, kv) })
}

func holds(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	var result int
	switch c.Target {
	case pb.Compare_VALUE:
		result = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_CREATE:
		result = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		result = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VERSION:
		result = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_LEASE:
		result = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return result == 0
	case pb.Compare_NOT_EQUAL:
		return result != 0
	case pb.Compare_GREATER:
		return result > 0
	case pb.Compare_LESS:
		return result < 0
	}
	return true
}
