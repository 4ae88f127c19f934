package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

const (
	// recheckAfter bounds the harm of a watch that lives and has still missed a
	// deletion. No such watch is known.
	recheckAfter = 30 * time.Second

	// healthyWatch: a watch that lived for this long resets the backoff.
	healthyWatch = time.Second

	// maxPatience bounds by how much a waiter's patience with its watch grows.
	maxPatience = 16
)

// awaitAhead waits until the entry ahead is gone, and returns nil when it is known
// what stands ahead now.
func (e *entry) awaitAhead(ctx context.Context) error {
	ahead := e.ahead
	patience := time.Duration(1)
	for {
		err := e.q.retry(ctx, func(ctx context.Context) error {
			if e.ahead != ahead { // found by the read after a watch that failed
				return nil
			}
			err := e.watchAhead(ctx, patience)
			// The member may hang, or it may be overloaded. Watches that are made
			// again and again would add to the load, so wait longer each time.
			patience = min(2*patience, maxPatience)
			return err
		})
		if err != nil || e.ahead != ahead {
			return err
		}
		// The watch was healthy before it ended, so pause and patience start anew.
		patience = 1
		var pauses pauses
		if err := pauses.next(ctx, e.q.host, nil); err != nil {
			return err
		}
	}
}

// watchAhead watches the key of the entry ahead until that is deleted, and then
// judges how it went. It returns nil with e.ahead unchanged if a healthy watch ended.
//
// The watch starts from now, not from a known revision: etcd serves that by a loop
// which brings late watchers up to date every 100 ms. A deletion before the watch
// was created is found by the read that follows.
//
// Whatever ends the watch (compaction, cancellation, no leader, a closed stream),
// the answer is to read and to watch again. The read decides what it means: it is
// sent to other members if one hangs, gets a new token if that of the stream has
// expired, and fails for good if a permission was withdrawn.
//
// patience multiplies the times after which a silent watch is given up.
func (e *entry) watchAhead(ctx context.Context, patience time.Duration) error {
	q, ahead := e.q, e.ahead
	moved := func() bool { return e.ahead != ahead }
	streams := &q.shared.streams
	st, limit := streams.pick()
	wctx, cancel := context.WithCancel(st.context(q.host.Context()))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()

	arming := time.AfterFunc(patience*limit, cancel) // Watch itself blocks until the server has answered
	defer arming.Stop()
	events := q.host.Client().Watch(wctx, string(ahead.Key), clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	if _, err := nextEvent(ctx, events, nil); err != nil {
		if verr := e.verify(ctx); verr != nil {
			streams.armed(st) // etcd does not answer reads either: not the stream's fault
			return verr
		}
		streams.failed(st)
		if moved() {
			return nil
		}
		return backoff.Again(fmt.Errorf("arm a watch: %w", err))
	}
	arming.Stop()
	streams.armed(st)
	armed := time.Now()
	telemetry.Armed(ctx)

	if err := e.verify(ctx); err != nil || moved() {
		return err
	}
	// A progress request that outlived the watch would open a stream of its own, and
	// leave it open. So it is joined before the watch ends.
	pctx, stopProgress := context.WithCancel(wctx)
	var progress sync.WaitGroup
	defer func() {
		stopProgress()
		progress.Wait()
	}()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for heard, read := time.Now(), time.Now(); ; {
		deleted, err := nextEvent(ctx, events, tick.C)
		switch {
		case err == errTick && time.Since(heard) >= patience*silentAfter:
			streams.drop(st)
			return backoff.Again(errors.New("the watch is on a member that does not answer"))
		case err == errTick:
			if streams.progressDue(st) {
				progress.Go(func() { st.requestProgress(pctx, q.host.Client()) }) // joined above
			}
		case err != nil && ctx.Err() == nil && time.Since(armed) >= healthyWatch:
			return nil
		case err != nil:
			return backoff.Again(err)
		case deleted > 0:
			return e.judge(ctx, deleted)
		default: // progress, which any response is
			heard = time.Now()
		}
		if time.Since(read) >= recheckAfter {
			if err := e.verify(ctx); err != nil || moved() {
				return err
			}
			read = time.Now()
		}
	}
}

// errTick is nextEvent's error for a tick.
var errTick = errors.New("tick")

// nextEvent waits for a response of the watch, for tick (errTick), or for ctx. It
// returns the revision of a deletion, or 0.
func nextEvent(ctx context.Context, events clientv3.WatchChan, tick <-chan time.Time) (deleted int64, err error) {
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

// retry calls op, and again with the session's pauses while its error says that
// repeating can help. Each request of op bounds itself.
func (q *Queue) retry(ctx context.Context, op func(ctx context.Context) error) error {
	policy := q.host.RetryPolicy()
	policy.Attempt = 0
	conn := q.host.Client().ActiveConnection()
	return backoff.Retry(ctx, policy, func(ctx context.Context) error {
		return etcderr.WithConnection(conn, op(ctx))
	})
}

// pauses are the session's pauses between the rounds of a loop.
type pauses struct{ backoff *backoff.BackOff }

// next makes the next pause. failed is what the round before has ended with; nil: it
// is not reported. It returns early when ctx or the session ends, with the reason.
func (p *pauses) next(ctx context.Context, host lease.Host, failed error) (err error) {
	policy := host.RetryPolicy()
	if p.backoff == nil {
		if p.backoff, err = policy.New(); err != nil {
			return err
		}
	}
	pause := p.backoff.NextBackOff()
	if policy.Notify != nil && failed != nil {
		policy.Notify(failed, pause)
	}
	ctx, cancel := withSession(ctx, host)
	defer cancel()
	if !sleep(ctx, pause) {
		return backoff.ContextErr(ctx)
	}
	return nil
}

// reset has next begin with the first pause again.
func (p *pauses) reset() { p.backoff = nil }

// withSession returns ctx, ended also by the end of the session, with
// holdfast.ErrClosed as its cause then.
func withSession(ctx context.Context, host lease.Host) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(host.Context(), func() { cancel(holdfast.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// sleep reports whether d has passed before ctx ended.
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

// jittered returns d, more or less a tenth.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5)
}
