package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// recheckAfter bounds what a watch can cost that lives and still has missed a
// deletion. None is known to.
const recheckAfter = 30 * time.Second

// healthyWatch is how long a watch must have lived for its end to be a new
// failure: then the pauses between attempts start anew.
const healthyWatch = time.Second

// maxPatience bounds by how much a waiter's patience with its watch grows.
const maxPatience = 16

// retry repeats op with the session's pauses, while its error says that repeating
// can help. Each request of op bounds itself.
func (q *Queue) retry(ctx context.Context, op func(ctx context.Context) error) error {
	policy := q.sess.RetryPolicy()
	policy.Attempt = 0
	conn := q.sess.Client().ActiveConnection()
	return backoff.Retry(ctx, policy, func(ctx context.Context) error {
		return etcderr.WithConnection(conn, op(ctx))
	})
}

// awaitAhead waits until the entry ahead has left, and returns nil when it is
// known what stands ahead now.
func (e *entry) awaitAhead(ctx context.Context) error {
	ahead := e.ahead
	patience := time.Duration(1)
	for {
		err := e.q.retry(ctx, func(ctx context.Context) error {
			if e.ahead != ahead { // moved by a read, after a watch that failed
				return nil
			}
			err := e.watchAhead(ctx, patience)
			// A member that hangs, or one that has too much to do? Watches made
			// again and again would add to that.
			patience = min(2*patience, maxPatience)
			return err
		})
		if err != nil || e.ahead != ahead {
			return err
		}
		// The watch lasted for a while, so the pauses start anew.
		patience = 1
		if err := e.q.pause(ctx); err != nil {
			return err
		}
	}
}

// pause makes the first pause of the session's policy.
func (q *Queue) pause(ctx context.Context) error {
	pauses, err := q.sess.RetryPolicy().New()
	if err != nil {
		return err
	}
	if !sleep(ctx, pauses.NextBackOff()) {
		return backoff.ContextErr(ctx)
	}
	return nil
}

// jittered is d, more or less a tenth.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5)
}

// sleep reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watchAhead watches one key from now on. A watch from a known revision would
// be served by the loop that brings late watchers up to date, every 100 ms; a
// watch from "now" is served at once. What happened before it stood is found
// by the read that follows its creation.
//
// Whatever ends a watch, compaction, cancellation, no leader, a closed stream:
// look again and watch again. What etcd means by it is for the read to say. It
// is sent to all members in turn where a watch may hang on one, and gets itself a new
// token where the stream's has expired; an error that ends it, a permission
// withdrawn, is one that no retry can mend. It returns nil with nothing known if
// the watch ended after it had worked for a while.
//
// patience multiplies the times after which a watch that says nothing is left.
func (e *entry) watchAhead(ctx context.Context, patience time.Duration) error {
	q, ahead := e.q, e.ahead
	left := func() bool { return e.ahead != ahead }
	streams := &q.local.streams
	st, bound := streams.pick()
	wctx, cancel := context.WithCancel(st.context(q.sess.Context()))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()

	unarmed := time.AfterFunc(patience*bound, cancel) // Watch itself blocks until the server has answered
	defer unarmed.Stop()
	events := q.sess.Client().Watch(wctx, string(ahead.Key), clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	if _, err := next(ctx, events, nil); err != nil {
		if verr := e.verify(ctx); verr != nil {
			streams.armed(st) // the stream is not to blame
			return verr
		}
		streams.failed(st)
		if left() {
			return nil
		}
		return backoff.Again(fmt.Errorf("arm a watch: %w", err))
	}
	unarmed.Stop()
	streams.armed(st)
	armed := time.Now()
	telemetry.Armed(ctx)

	if err := e.verify(ctx); err != nil || left() {
		return err
	}
	// A question that outlived the watch would open a stream of its own, and leave
	// it open.
	actx, stopAsking := context.WithCancel(wctx)
	var asking sync.WaitGroup
	defer func() {
		stopAsking()
		asking.Wait()
	}()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for heard, looked := time.Now(), time.Now(); ; {
		deleted, err := next(ctx, events, tick.C)
		switch {
		case err == errTick && time.Since(heard) >= patience*silentAfter:
			streams.leave(st.number)
			return backoff.Again(errors.New("the watch is on a member that does not answer"))
		case err == errTick:
			if streams.due(st) {
				asking.Go(func() { st.ask(actx, q.sess.Client()) }) // joined above
			}
		case err != nil && ctx.Err() == nil && time.Since(armed) >= healthyWatch:
			return nil
		case err != nil:
			return backoff.Again(err)
		case deleted > 0:
			return e.judge(ctx, deleted)
		default:
			heard = time.Now()
		}
		if time.Since(looked) >= recheckAfter {
			if err := e.verify(ctx); err != nil || left() {
				return err
			}
			looked = time.Now()
		}
	}
}

// errTick is what next returns when it was the tick that ended it.
var errTick = errors.New("tick")

// next waits for one response of a watch, for tick (errTick), or for ctx, and
// returns the revision of a deletion, or 0.
func next(ctx context.Context, events clientv3.WatchChan, tick <-chan time.Time) (deleted int64, err error) {
	select {
	case resp, ok := <-events:
		switch {
		case !ok:
			return 0, errors.New("the watch was closed")
		case len(resp.Events) > 0:
			return resp.Events[0].Kv.ModRevision, nil
		}
		return 0, resp.Err()
	case <-tick:
		return 0, errTick
	case <-ctx.Done():
		return 0, backoff.ContextErr(ctx)
	}
}
