package sqlfence

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
)

// askTimeout bounds the request to etcd, which only makes an error more precise.
const askTimeout = 2 * time.Second

// explain returns ErrRewound instead of below if the holder's entry still exists after
// the mark was read: then no newer holder can have raised the mark.
func (r *request) explain(ctx context.Context, below *fencing.MarkError) error {
	h, ok := r.source.(fencing.Holder)
	if !ok || h.Check() != nil {
		return below
	}
	cli, owned := h.Client(), h.Holding()
	if cli == nil || cli.KV == nil || len(owned) == 0 || len(owned[0].KeyBytes()) == 0 {
		return below
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// The read makes the comparison linearizable: without it, the member that gets the
	// transaction may answer from old data.
	read := clientv3.OpGet(string(owned[0].KeyBytes()), clientv3.WithKeysOnly())
	resp, err := cli.Txn(ctx).If(owned...).Then(read).Commit()
	if err != nil || !resp.Succeeded {
		return below
	}
	return rewound(below)
}

// rewound returns below as ErrRewound, with what to do.
func rewound(below *fencing.MarkError) error {
	advice := "Reset the mark, which no epoch can reach, once no stale holder is left"
	if below.NeedsEpoch() <= fencing.MaxEpochStep {
		advice = fmt.Sprintf("after a restore of etcd raise the epoch to %d or more (etcdfence.BumpEpoch) and acquire again",
			below.NeedsEpoch())
	}
	said := *below
	said.Err = fmt.Errorf("%w: its mark is %v, although the holder is the present one: %s", ErrRewound, below.Mark, advice)
	return &said
}
