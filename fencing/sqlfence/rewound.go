package sqlfence

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
)

// askTimeout bounds the question to etcd. The answer only makes an error more
// precise.
const askTimeout = 2 * time.Second

// explain tells an ordinary stale holder from one that is the present one: if
// the holder's entry still stands after the mark was read, then no later holder
// exists that could have set it.
func (r *request) explain(ctx context.Context, below *fencing.MarkError) error {
	h, ok := r.source.(fencing.Holder)
	if !ok || h.Check() != nil {
		return below
	}
	cli, owner := h.Client(), h.IsOwner()
	if cli == nil || cli.KV == nil || len(owner.KeyBytes()) == 0 {
		return below
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// The read is what makes the comparison linearizable: a transaction without
	// one is answered by whatever member gets it, as of some time ago.
	resp, err := cli.Txn(ctx).If(owner).Then(clientv3.OpGet(string(owner.KeyBytes()), clientv3.WithKeysOnly())).Commit()
	if err != nil || !resp.Succeeded {
		return below
	}
	return &RewoundError{below}
}
