package etcdfence

import (
	"cmp"
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// MaxMarkOps is the largest number of operations in one [Marks.Commit]: etcd's
// default limit of 128, less what the mark needs.
const MaxMarkOps = 124

// Commit compares and raises the mark and carries out ops in one etcd transaction, by one RPC. For comparisons of your
// own pass a single clientv3.OpTxn. The response has the results of ops in order.
//
// Errors are those of fencing.Store.Do, and holdfast.ErrOutcomeUnknown: it was not answered, is not sent again, and may
// take effect later, but not after a larger token has written. More than [MaxMarkOps] operations, and an operation or a
// comparison without a key, are a *holdfast.ArgumentError before anything is sent.
func (m *Marks) Commit(
	ctx context.Context, resource string, c fencing.Claim, ops ...clientv3.Op,
) (*clientv3.TxnResponse, error) {
	r := &request{verb: "commit", resource: resource, token: c.Token}
	if err := fence.CheckUse(ctx, resource, c); err != nil {
		return nil, err
	}
	if err := cmp.Or(retry.ContextErr(ctx), checkOp(clientv3.OpTxn(nil, ops, nil), MaxMarkOps)); err != nil {
		return nil, r.refuse(err)
	}
	// One transaction:
	//
	//	If the mark is of c's name, not above c's token and not too far below
	//	Then put the mark, ops
	//	Else [ If there is no mark, and c may be the first
	//	       Then put the mark, ops
	//	       Else read the mark, to say why ]
	key, text := m.prefix+r.resource, markText(c)
	tooFarBelow := holdfast.Token(0) // the largest such number, if there is one
	if first, err := holdfast.NewToken(c.Token.Epoch()-fencing.MaxEpochStep, 1); err == nil {
		tooFarBelow = first - 1
	}
	none := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
	if c.CheckMark(r.resource, fencing.Claim{}) != nil {
		none = append(none, clientv3.Compare(clientv3.CreateRevision(key), ">", 0)) // never both
	}
	work := []clientv3.Op{clientv3.OpPut(key, text), clientv3.OpTxn(nil, ops, nil)}
	resp, err := m.kv.Txn(ctx).
		// Comparing the value of a missing key is false.
		If(clientv3.Compare(clientv3.Value(key), ">", markText(fencing.Claim{Name: c.Name, Token: tooFarBelow})+"\xff"),
			clientv3.Compare(clientv3.Value(key), "<", text+"\x00")).
		Then(work...).
		Else(clientv3.OpTxn(none, work, []clientv3.Op{clientv3.OpGet(key)})).
		Commit()
	if err != nil {
		return nil, r.failed(ctx, err)
	}
	done := resp.Responses
	if !resp.Succeeded {
		if len(done) != 1 || done[0].GetResponseTxn() == nil {
			return nil, r.malformed()
		}
		inner := done[0].GetResponseTxn()
		done = inner.Responses
		if !inner.Succeeded {
			return nil, m.refused(r, c, done)
		}
	}
	if len(done) != 2 || done[1].GetResponseTxn() == nil {
		return nil, r.malformed()
	}
	inner := done[1].GetResponseTxn()
	inner.Header = resp.Header // etcd fills in only the outermost header
	return (*clientv3.TxnResponse)(inner), nil
}

// refused returns the reason why neither branch of Commit did the work.
func (m *Marks) refused(r *request, c fencing.Claim, got []*etcdserverpb.ResponseOp) error {
	if len(got) != 1 || got[0].GetResponseRange() == nil {
		return r.malformed()
	}
	mark, _, err := m.markOf(r.resource, got[0].GetResponseRange())
	if err == nil {
		err = c.CheckMark(r.resource, mark)
	}
	if err != nil {
		return fencing.NotDone(err)
	}
	return r.malformed() // the mark admits c, so etcd should have too
}
