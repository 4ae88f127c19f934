package fencing

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
)

// MaxMarkOps is the largest number of operations in one [EtcdMarks.Commit]:
// etcd's default limit, less what the mark takes.
const MaxMarkOps = 124

// Commit carries out ops in one etcd transaction, together with the comparison
// of the mark and its raising: one RPC, but for resources without a mark now and
// then (see [EtcdOptions].MaxMarks). For comparisons of one's own, give one
// clientv3.OpTxn. The responses are those of ops, in their order, under the
// header of the whole.
//
// Its errors are those of [Store].Do; beyond them [ErrTooManyOps] for more than
// [MaxMarkOps], [ErrEmptyKey], [ErrTxnMisuse], and holdfast.ErrOutcomeUnknown if
// it was sent and not answered. Then it may take effect later, but not after a
// larger token's. It is never sent again from here; see [FencedWriter] for why.
func (m *EtcdMarks) Commit(ctx context.Context, resource string, c Claim, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	r := &request{verb: "commit", resource: resource, token: c.Token}
	if err := checkUse(resource, c); err != nil {
		return nil, err
	}
	if err := checkTxn(nil, ops, nil, MaxMarkOps); err != nil {
		return nil, r.refuse(err)
	}
	if err := backoff.ContextErr(ctx); err != nil {
		return nil, r.refuse(err)
	}
	resp, none, err := m.commit(ctx, r, c, m.opts.MaxMarks < 0 || m.room.Load() > 0, ops)
	if !none {
		return resp, err
	}
	if err := m.makeRoom(ctx, resource); err != nil {
		return nil, r.refuse(err)
	}
	resp, none, err = m.commit(ctx, r, c, true, ops)
	if none {
		return nil, r.malformed()
	}
	return resp, err
}

// commit is one transaction. With first, it may be the first of its resource;
// otherwise none reports that it would be, and that nothing was done.
func (m *EtcdMarks) commit(ctx context.Context, r *request, c Claim, first bool, ops []clientv3.Op) (_ *clientv3.TxnResponse, none bool, _ error) {
	key, text := m.prefix+r.resource, markText(c)
	lowest := max(0, (c.Token.Epoch()-MaxEpochStep)<<revisionBits-1) // of the tokens that are too far below
	noMark := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
	if !first || c.CheckMark(r.resource, Claim{}) != nil {
		noMark = append(noMark, clientv3.Compare(clientv3.CreateRevision(key), ">", 0)) // both are never true
	}
	work := []clientv3.Op{clientv3.OpPut(key, text), clientv3.OpTxn(nil, ops, nil)}
	resp, err := m.kv.Txn(ctx).
		If( // a mark of the same name, not above the token and not too far below
			clientv3.Compare(clientv3.Value(key), ">", markText(Claim{c.Name, Token(lowest)})+"\xff"),
			clientv3.Compare(clientv3.Value(key), "<", text+"\x00")).
		Then(work...).
		Else(clientv3.OpTxn( // a comparison of values is false for what does not exist
			noMark,
			work,
			[]clientv3.Op{clientv3.OpGet(key)})).
		Commit()
	if err != nil {
		return nil, false, r.failed(ctx, err)
	}
	done := resp.Responses
	if !resp.Succeeded {
		if len(done) != 1 || done[0].GetResponseTxn() == nil {
			return nil, false, r.malformed()
		}
		inner := done[0].GetResponseTxn()
		done = inner.Responses
		if !inner.Succeeded {
			none, err := m.refused(r, c, done, first)
			return nil, none, err
		}
		m.room.Add(-1)
	}
	if len(done) != 2 || done[1].GetResponseTxn() == nil {
		return nil, false, r.malformed()
	}
	inner := done[1].GetResponseTxn()
	inner.Header = resp.Header // the server fills in the outermost one only
	return (*clientv3.TxnResponse)(inner), false, nil
}

// refused is the error for a transaction that etcd answered with the mark, or
// says that there is none, and that this was all that was wrong.
func (m *EtcdMarks) refused(r *request, c Claim, got []*etcdserverpb.ResponseOp, first bool) (none bool, _ error) {
	if len(got) != 1 || got[0].GetResponseRange() == nil {
		return false, r.malformed()
	}
	mark, mod, err := m.found(r.resource, got[0].GetResponseRange())
	if err == nil {
		err = c.CheckMark(r.resource, mark)
	}
	switch {
	case err != nil:
		return false, NotDone(err)
	case mod == 0 && !first:
		return true, nil
	}
	return false, r.malformed() // nothing speaks against it, and yet it was refused
}
