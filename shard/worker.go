package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// steadyHold is how long a shard must be held for the pauses to start over.
const steadyHold = time.Second

// The states of a shard in the metrics.
const (
	waiting = "waiting"
	owned   = "owned"
)

// worker holds one shard while this member wants it, and runs the function.
type worker struct {
	r      *run
	index  int
	queue  *queue.Queue
	pauses *retry.Pauses
	idle   *retry.Pauses // after nil from a function
}

// maxIdle is the longest pause after a function has returned nil. Each further call costs two revisions for nothing,
// and no other member may own the shard.
const maxIdle = time.Minute

func newWorker(r *run, index int) *worker {
	policy := r.shards.opts.Retry
	return &worker{
		r: r, index: index, queue: r.shards.queue(index),
		pauses: retry.NewPauses(policy.Initial, policy.Max, policy.Rand),
		idle:   retry.NewPauses(policy.Initial, max(policy.Max, maxIdle), policy.Rand),
	}
}

// run holds the shard again and again until ctx ends: the shard is given up, or Run ends.
func (w *worker) run(ctx context.Context) {
	var next *retry.Pauses
	for ; ctx.Err() == nil; lease.Sleep(ctx, next.NextBackOff()) {
		next = w.pauses
		h, err := w.acquire(ctx)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return
		case errors.Is(err, queue.ErrCondition): // the number has changed, or its key is gone
			w.r.ensureCount()
			continue
		case permanent(err): // Run ends
			return
		default:
			w.r.tell(w.index, err)
			continue
		}
		held := time.Now()
		w.r.telemetry.State(waiting, owned)
		o := w.hold(ctx, h)
		w.r.telemetry.State(owned, waiting)
		switch {
		case o.exited:
			w.r.telemetry.Failed("panic")
			w.r.exited(o)
			return
		case o.err != nil && !o.isContextEnd():
			w.r.telemetry.Failed("error")
			w.r.tell(w.index, o.err)
		case o.ended == nil: // it has returned nil
			w.r.telemetry.Failed("returned")
			w.r.tell(w.index, ErrReturned)
			next = w.idle
		}
		if time.Since(held) >= steadyHold {
			w.pauses.Reset()
			w.idle.Reset()
		}
	}
}

func (w *worker) acquire(ctx context.Context) (*hold.Hold, error) {
	opts := w.r.shards.opts
	h, err := hold.Acquire(ctx, w.queue, hold.Request{
		// While an entry stands, a resize is refused. Until then the member's key alone may not refuse it:
		//
		//	rev 20  the function of the only shard of 1 has returned: no entry stands
		//	rev 21  an operator deletes the member's key, whose event is late · rev 22: a resize, from 1 to 64
		//	rev 25  the put compares the number, and etcd refuses it; the member ends
		Request: queue.Request{Owner: w.r.member.Name(), Data: opts.Value, If: w.r.shards.countIs()},
		Auditor: opts.Auditor,
	})
	if err != nil {
		return nil, fmt.Errorf("shard %s not acquired: %w", names.Quote(w.queue.Name()), err)
	}
	return h, nil
}

// hold runs the function under a hold, if that has not ended yet, and releases the shard after it.
func (w *worker) hold(ctx context.Context, h *hold.Hold) outcome {
	s := &Shard{requests.NewHook(h), h, w.index, w.r.shards.opts.CancelOnSuspended}
	defer w.r.shards.here.shards.add(s)()
	var o outcome
	switch {
	case ctx.Err() != nil: // while the auditor ran. No function begins in vain
		o.ended = context.Cause(ctx)
	case !h.Live():
		o.ended = h.Check()
	default:
		o = w.call(ctx, s)
	}
	_ = h.ReleaseAfterWork(ended(ctx)) // the session goes on with it; the auditor is told a loss
	return o
}

// outcome is how one call of the function ended.
type outcome struct {
	err      error // what it returned
	ended    error // why its context had ended when it returned, or before it was called; nil: it had not
	exited   bool  // it ended by a panic or runtime.Goexit
	panicked any   // the panic's value; nil: Goexit
}

// isContextEnd reports whether the error only says: the context has ended.
func (o outcome) isContextEnd() bool {
	return o.ended != nil && (errors.Is(o.err, context.Canceled) || status.Code(o.err) == codes.Canceled ||
		errors.Is(o.err, o.ended))
}

// call calls the function and waits for it. Once its context has ended, call waits for at most DrainTimeout; then the
// shard is lost, and call waits on until Run ends.
func (w *worker) call(ctx context.Context, s *Shard) outcome {
	fctx, cancel := s.WithContext(ctx)
	defer cancel()
	outcomes, abandoned := make(chan outcome), make(chan struct{})
	opts := w.r.shards.opts
	work := hold.NewWork(s.hold, nil, opts.OnOverrun, opts.CancelOnSuspended)
	go w.invoke(fctx, s, work, outcomes, abandoned) // received below, or it ends when the function returns

	select {
	case o := <-outcomes:
		return o
	case <-fctx.Done():
	}
	drain := time.NewTimer(opts.drainTimeout())
	defer drain.Stop()
	select {
	case o := <-outcomes:
		return o
	case <-drain.C:
	}
	w.r.telemetry.Failed("not drained")
	work.Overrun(holdfast.CauseNotDrained, time.Now().Add(-opts.drainTimeout()))
	late := fmt.Errorf("shard %s: %w within %v: %w", names.Quote(s.Name()), ErrNotDrained,
		opts.drainTimeout(), s.hold.Abandon(holdfast.CauseNotDrained))
	w.r.tell(w.index, late)
	select {
	case o := <-outcomes:
		return o
	case <-w.r.functions.Done():
		close(abandoned)
		w.r.abandon(late)
		return outcome{ended: late}
	}
}

// abandon records a function that still runs when Run returns.
func (r *run) abandon(late error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notDrained = late
}

// invoke calls the function and sends the outcome. It logs the stack of a panic. After an abandoned call no caller is
// left to receive the outcome: then invoke logs the error, and lets a panic end the process.
func (w *worker) invoke(
	ctx context.Context, s *Shard, work *hold.Work, outcomes chan<- outcome, abandoned <-chan struct{},
) {
	o := outcome{exited: true}
	defer func() {
		if o.panicked = recover(); o.panicked != nil {
			w.r.shards.log().Error("holdfast: function panicked; Run ends, releases all shards, and panics likewise",
				"shard", w.index, "panic", fmt.Sprint(o.panicked), "stack", string(debug.Stack()))
		}
		select {
		case outcomes <- o:
		case <-abandoned:
			w.r.shards.log().Warn("holdfast: abandoned function has returned", "shard", w.index, "error", o.err)
			if o.panicked != nil {
				panic(o.panicked)
			}
		}
	}()
	defer work.End()
	o.err = w.r.fn(ctx, s)
	o.ended = cmp.Or(context.Cause(ctx), s.end()) // by Check it may see the end before its context is canceled
	o.exited = false
}

// permanent reports whether a retry cannot help after this error. An acquisition goes on after the loss of its lease,
// so ErrLost says: the session has StayLost.
func permanent(err error) bool {
	return errors.Is(err, holdfast.ErrClosed) || errors.Is(err, holdfast.ErrClientClosed) ||
		errors.Is(err, holdfast.ErrLost)
}
