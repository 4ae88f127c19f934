package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// recheckAfter bounds what a silent watch can cost. A watch that works never
// needs it; one on a member that hangs while others answer would otherwise
// wait for good.
const recheckAfter = 30 * time.Second

// retry repeats op, each attempt bounded, while its error says that repeating
// can help. An attempt that ended for lack of a connection says why there is
// none.
func (q *Queue) retry(ctx context.Context, op func(ctx context.Context) error) error {
	conn := q.sess.Client().ActiveConnection()
	return backoff.Retry(ctx, q.sess.Base().RetryPolicy(), func(ctx context.Context) error {
		return backoff.WithConnection(conn, op(quiet{ctx}))
	})
}

// quiet is a context that ends when it does and does not say so beforehand.
// gRPC would send a deadline along with each request, for the server to set a
// timer by, and then both ends may be the first to give up: if it is the server,
// etcd's client repeats the request, a write too.
type quiet struct{ context.Context }

func (quiet) Deadline() (time.Time, bool) { return time.Time{}, false }

// awaitGone returns nil once ahead was seen gone. What that means for the
// caller is for a read made afterwards to say: an event alone never decides.
func (q *Queue) awaitGone(ctx context.Context, ahead *mvccpb.KeyValue) error {
	policy := q.sess.Base().RetryPolicy()
	policy.Attempt = 0 // a wait is as long as it is
	return backoff.Retry(ctx, policy, func(ctx context.Context) error { return q.watchGone(ctx, ahead) })
}

// watchGone watches one key from now on. A watch from a known revision would
// be served by the loop that brings late watchers up to date, every 100 ms; a
// watch from "now" is served at once. What happened before it stood is found
// by the read that follows its creation.
//
// Whatever ends a watch, compaction, cancellation, no leader, a closed stream:
// look again and watch again. What etcd means by it is for the read to say. It
// goes round all members where a watch may hang on one, and gets itself a new
// token where the stream's has expired; an error that ends it, a permission
// withdrawn, is one that no retry can mend.
func (q *Queue) watchGone(ctx context.Context, ahead *mvccpb.KeyValue) error {
	streams := &q.local.streams
	wctx, generation := streams.context(q.sess.Base().Context())
	wctx, cancel := context.WithCancel(wctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()

	unarmed := time.AfterFunc(q.sess.Base().RetryPolicy().Attempt, cancel) // Watch itself blocks until the server has answered
	defer unarmed.Stop()
	events := q.sess.Client().Watch(wctx, string(ahead.Key), clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	if _, err := next(ctx, events, nil); err != nil {
		if gone, err := q.gone(ctx, ahead); err != nil || gone {
			return err
		}
		streams.leave(generation)
		return backoff.Again(fmt.Errorf("arm a watch: %w", err))
	}
	unarmed.Stop()
	telemetry.Armed(ctx)

	recheck := time.NewTicker(recheckAfter)
	defer recheck.Stop()
	for {
		if gone, err := q.gone(ctx, ahead); err != nil || gone {
			return err
		}
		if deleted, err := next(ctx, events, recheck.C); err != nil || deleted {
			return backoff.Again(err)
		}
	}
}

// next waits for one response of a watch, for tick, or for ctx, and reports
// whether it was a deletion.
func next(ctx context.Context, events clientv3.WatchChan, tick <-chan time.Time) (deleted bool, err error) {
	select {
	case resp, ok := <-events:
		if !ok {
			return false, errors.New("the watch was closed")
		}
		return len(resp.Events) > 0, resp.Err()
	case <-tick:
		return false, nil
	case <-ctx.Done():
		return false, backoff.ContextErr(ctx)
	}
}

// gone reads whether an entry has left: a key that was created anew is another.
func (q *Queue) gone(ctx context.Context, kv *mvccpb.KeyValue) (gone bool, err error) {
	err = q.retry(ctx, func(ctx context.Context) error {
		resp, err := q.sess.Client().Get(ctx, string(kv.Key), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		gone = len(resp.Kvs) == 0 || resp.Kvs[0].CreateRevision != kv.CreateRevision
		return nil
	})
	return gone, err
}
