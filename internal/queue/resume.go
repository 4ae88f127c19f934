package queue

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/attempt"
)

// Resume waits while the hold is suspended, and then reads whether its entry
// still stands: somebody may have deleted it meanwhile. nil: the hold is
// connected, and a linearizable read made after the reconnection has seen the
// entry. Otherwise Check's answer if the hold has ended, or ends by what etcd
// says; ctx's error; or what etcd said that no retry can mend.
func (h *Hold) Resume(ctx context.Context) error {
	hctx, cancel := h.Context(ctx, false)
	defer cancel()
	for {
		stands := false
		err := h.entry.lease.AwaitConnected(hctx)
		if err == nil {
			stands, err = h.entryStands(hctx)
		}
		switch {
		case !h.Live():
			return h.Check()
		case ctx.Err() != nil:
			return backoff.ContextErr(ctx)
		case err != nil:
			return err
		case !stands:
			h.end(h.vanished(h.entry.lease.Context()))
			return h.Check()
		case h.Check() == nil:
			return nil
		}
	}
}

// entryStands reads whether the hold's entry is in etcd. Nothing can have joined the
// queue ahead of it.
func (h *Hold) entryStands(ctx context.Context) (bool, error) {
	return attempt.Ask(ctx, h.entry.q.sess.Sender(), attempt.Read, func(ctx context.Context) (bool, error) {
		resp, err := h.Client().Get(ctx, h.Key(), clientv3.WithKeysOnly())
		if err != nil {
			return false, err
		}
		return len(resp.Kvs) == 1 && resp.Kvs[0].CreateRevision == h.entry.rev, nil
	})
}
