package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// lastedLong is how long a term must last for the pauses to start anew.
const lastedLong = time.Second

// Run leads term after term until ctx ends: it campaigns, runs fn as
// RunWhileLeader does, resigns when fn has returned, pauses, and campaigns
// again.
//
//   - fn returned nil: Run resigns; the next term.
//   - fn returned an error before its context had ended: Run resigns and returns
//     it.
//   - fn's context had ended before fn returned, because the term was lost or
//     resigned: the next term. What fn returned then never ends Run, also an
//     error of its own or a gRPC status; it is logged.
//   - fn's context had ended because the session was suspended (under
//     Options.CancelOnSuspended): Run waits until the session is connected again
//     or the term is lost. If the session is connected on the same lease, and a
//     read sees the entry stand, Run calls fn again with the same Term. Nothing
//     was lost, so OnDeposed and OnElected are not called. Otherwise the next
//     term follows. The wait ends with ctx.
//   - A campaign failed: it is logged and tried again, unless that is hopeless:
//     bad arguments, holdfast.ErrClosed, holdfast.ErrReentrant, or a session that
//     was lost under session.Options.StayLost. Then Run returns the
//     *CampaignError.
//   - fn did not return in time after its context ended (ErrNotDrained): the
//     next campaign begins when it has returned, and no sooner. fn never runs
//     twice at once on one session, whoever calls Run or RunWhileLeader there.
//   - ctx ended: fn is waited for as in RunWhileLeader, and Run returns ctx's
//     error, or fn's if fn was running then and returned another one, or
//     ErrNotDrained.
//
// Pauses are drawn by Options.Pause; OnElected, OnDeposed and OnNewLeader there
// are told what happens. Run returns when they have returned, or after
// Options.DrainTimeout if they do not; which one it was is logged. A panic of
// fn resigns, and goes on on the caller's goroutine.
func (e *Election) Run(ctx context.Context, value string, fn Func) error {
	if err := e.admitFunc(ctx, value, fn); err != nil {
		return e.failed(0, err)
	}
	pauses, err := e.opts.Pause.New()
	if err != nil {
		return e.failed(0, err) // admitFunc has validated it
	}
	r := &run{election: e, notices: notices{log: e.queue.Session().Logger().With("election", e.Name())}}
	defer r.notices.finish(e.opts.drainTimeout())
	defer r.watchLeaders(ctx)()
	for {
		again, err := r.term(ctx, value, fn, pauses)
		if !again {
			return err
		}
		pause := time.NewTimer(pauses.NextBackOff())
		select {
		case <-pause.C:
		case <-ctx.Done(): // term says how to end
			pause.Stop()
		}
	}
}

type run struct {
	election *Election
	notices  notices
}

// term campaigns for one term and serves it. again: the next may follow.
func (r *run) term(ctx context.Context, value string, fn Func, pauses *backoff.BackOff) (again bool, err error) {
	e := r.election
	t, err := e.elect(ctx, value, fn)
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, ErrNotDrained):
		return false, backoff.ContextErr(ctx)
	case err != nil && (ctx.Err() != nil || hopeless(err)):
		return false, err
	case err != nil:
		r.notices.log.Warn("holdfast: a campaign failed; trying again", "error", err)
		return true, nil
	}
	began := time.Now()
	depose := r.tellElected(t)
	defer depose() // at the latest here, before the next is elected, and if fn panics
	served := e.serveAgain(ctx, t, fn, func(s served) bool { return r.resumed(ctx, t, s) })
	if time.Since(began) >= lastedLong {
		pauses.Reset()
	}
	switch {
	case ctx.Err() != nil && served.undrained != nil:
		return false, served.undrained
	case served.err != nil && served.end == nil && served.lost == nil: // in a term that was held
		return false, served.err
	case ctx.Err() != nil && served.err != nil && served.interrupted:
		return false, served.err
	case ctx.Err() != nil:
		return false, backoff.ContextErr(ctx)
	}
	r.logFailure(served)
	return true, nil
}

// resumed reports whether fn is to be called again in the same term: its context
// had ended because the session was suspended, and by now the session is
// connected on the same lease and the entry has been seen to stand.
func (r *run) resumed(ctx context.Context, t *Term, s served) bool {
	if ctx.Err() != nil || !errors.Is(s.end, holdfast.ErrSuspended) {
		return false
	}
	if err := t.hold.Resume(ctx); err != nil {
		if t.hold.Live() && ctx.Err() == nil {
			r.notices.log.Warn("holdfast: a term cannot be verified after a suspension; giving it up", "token", t.Token(), "error", err)
		}
		return false
	}
	r.logFailure(s)
	r.notices.log.Info("holdfast: the session is connected again and its term still stands; the function is called again", "token", t.Token())
	return true
}

// logFailure logs what fn has returned after its context had ended, unless that
// says no more than that.
func (r *run) logFailure(s served) {
	if s.err == nil || errors.Is(s.err, context.Canceled) || status.Code(s.err) == codes.Canceled || s.end != nil && errors.Is(s.err, s.end) {
		return
	}
	r.notices.log.Warn("holdfast: a function returned an error after its term or context had ended; Run goes on", "error", s.err, "end", s.end)
}

// hopeless are the reasons for which no further campaign can succeed.
func hopeless(err error) bool {
	var name *holdfast.NameError
	var argument *holdfast.ArgumentError
	return errors.As(err, &name) || errors.As(err, &argument) ||
		errors.Is(err, holdfast.ErrClosed) || errors.Is(err, holdfast.ErrReentrant) ||
		errors.Is(err, holdfast.ErrLost) // a campaign survives losses, unless the session stays lost
}

// tellElected queues the notice that t begins and sees to it that its end is
// told, as soon as it comes or, at the latest, when depose is called.
func (r *run) tellElected(t *Term) (depose func()) {
	opts := r.election.opts
	if opts.OnElected != nil {
		r.notices.tell(notice{callback: "OnElected", call: func() { opts.OnElected(t) }})
	}
	if opts.OnDeposed == nil {
		return func() {}
	}
	tell := sync.OnceFunc(func() {
		reason := t.Check()
		r.notices.tell(notice{callback: "OnDeposed", call: func() { opts.OnDeposed(t, reason) }})
	})
	term, cancel := t.hold.Context(context.Background(), false)
	stop := context.AfterFunc(term, tell)
	return func() {
		tell()
		stop()
		cancel()
	}
}

// watchLeaders tells OnNewLeader, if there is one, until the returned function
// is called.
func (r *run) watchLeaders(ctx context.Context) (stop func()) {
	tell := r.election.opts.OnNewLeader
	if tell == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // joined by stop
		defer close(done)
		var last fencing.Token
		err := r.election.front.Follow(ctx, r.election.reader().refresh(), func(f queue.Front) {
			l := leaderOf(f)
			if l.Token == 0 || l.Token == last {
				return
			}
			last = l.Token
			r.notices.tell(notice{callback: "OnNewLeader", call: func() { tell(l) }, replaced: true})
		})
		if ctx.Err() == nil && !errors.Is(err, holdfast.ErrClosed) {
			r.notices.log.Warn("holdfast: leaders can no longer be observed; OnNewLeader is not called any more", "error", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
