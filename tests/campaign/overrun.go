//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// An overrun is a call of OnOverrun: the function under a hold has not returned in time after that was lost.
type overrun struct {
	Of    string // the hold: see nameOf
	Cause holdfast.Cause
	At    time.Duration

	// For is how long a function has gone on that has returned since: see overstay. Not of a call.
	For time.Duration `json:",omitzero"`
}

// nameOf names a hold by its queue and its token. Holds of two queues may have the same token, if one transaction has
// put their entries.
func nameOf(prefix string, token holdfast.Token) string {
	return fmt.Sprintf("%s, token %d", prefix, token)
}

// overrun is OnOverrun of all locks, elections and shards.
func (w *worker) overrun(lost *holdfast.LostError, _ time.Time) {
	at := sinceBoot()
	of := nameOf(fmt.Sprintf("%s%s/%s/@/", oracle.Keys, lost.Kind, lost.Name), lost.Token)
	w.say(event{What: overran, Who: w.ID, Overrun: overrun{Of: of, Cause: lost.Cause, At: at}})
}

// A function is one that runs under a hold, as Do and Run call it.
type function struct {
	worker *worker
	part   oracle.Part   // that it holds
	stayed time.Duration // how long it has gone on after the loss of its hold
	over   chan struct{} // closed to have it return
	ended  chan error    // what Do or Run have returned
}

// overstay lets one of three functions go on for a while after the loss of its hold. It counts steps, and not the time
// that they take: in each of them the process runs, so that OnOverrun is called, however often the process is stopped.
func (fn *function) overstay(r *rand.Rand) {
	const step = 20 * time.Millisecond
	if r.IntN(3) > 0 {
		return
	}
	for d := family.UpTo(r, 4*time.Second); fn.stayed < d; fn.stayed += step {
		pauseFor(context.Background(), step)
	}
}

// returns reports that the function is about to return.
func (fn *function) returns(held fencing.Source) {
	o := overrun{Of: nameOf(fn.part.Prefix, held.Token()), At: sinceBoot(), For: fn.stayed}
	if lost := (*holdfast.LostError)(nil); errors.As(held.Check(), &lost) {
		o.Cause = lost.Cause
	}
	fn.worker.say(event{What: returned, Who: fn.worker.ID, Overrun: o})
}

var errUnconfirmed = errors.New("Do and Run do not say whether the release was confirmed")

// end has the function return, and waits until Do or Run have returned.
func (fn *function) end() error {
	close(fn.over)
	return errors.Join(<-fn.ended, errUnconfirmed)
}

type lockOfDo struct {
	*locker.Lock
	*function
}

func (l lockOfDo) Unlock(context.Context) error { return l.end() }

type termOfRun struct {
	*election.Term
	*function
}

func (t termOfRun) Unlock(context.Context) error { return t.end() }

// lockWithin acquires a mutex by Do, whose function returns when the lock is to be released.
func (w *worker) lockWithin(name, who string) family.Acquire {
	mu := locker.NewMutex(w.sess, name).With(locker.Options{Owner: who, OnOverrun: w.overrun})
	return func(ctx context.Context) (family.Lock, error) {
		lk, fn, err := acquireWithin(ctx, w, oracle.LockPart(name, false), mu.Do)
		return lockOfDo{lk, fn}, err
	}
}

// leadWithin leads by RunWhileLeader, likewise.
func (w *worker) leadWithin(name, who string) family.Acquire {
	el := election.New(w.sess, name).With(election.Options{Value: who, OnOverrun: w.overrun})
	return func(ctx context.Context) (family.Lock, error) {
		run := func(ctx context.Context, fn func(context.Context, *election.Term) error) error {
			return el.RunWhileLeader(ctx, fn)
		}
		term, fn, err := acquireWithin(ctx, w, oracle.ElectionPart(name), run)
		return termOfRun{term, fn}, err
	}
}

// acquireWithin returns when run has called its function. ctx bounds the acquisition only.
func acquireWithin[G fencing.Source](
	ctx context.Context, w *worker, part oracle.Part, run func(context.Context, func(context.Context, G) error) error,
) (held G, fn *function, err error) {
	all, cancel := context.WithCancel(context.WithoutCancel(ctx))
	keep := context.AfterFunc(ctx, cancel)
	granted := make(chan G)
	fn = &function{worker: w, part: part, over: make(chan struct{}), ended: make(chan error, 1)}
	go func() { // ends with end, or with the acquisition
		defer cancel()
		fn.ended <- run(all, func(_ context.Context, g G) error {
			granted <- g
			<-fn.over
			fn.returns(g)
			return nil
		})
	}()
	select {
	case held = <-granted:
		keep()
		return held, fn, nil
	case err = <-fn.ended:
		return held, fn, err
	}
}

const (
	// leastGrace is the shortest that this program's sessions have between a loss and OnOverrun, mostGrace the longest.
	leastGrace, mostGrace = 100 * time.Millisecond, 500 * time.Millisecond
	// kickGrace is how long a function may go on after a kick, and drainTimeout after its context has ended.
	kickGrace, drainTimeout = 30 * time.Second, 30 * time.Second
	// tellDelay is how much later than a call is decided it may begin, though its function returns meanwhile.
	tellDelay = time.Second
)

// judgeOverruns returns the calls of OnOverrun that had no reason: the function had returned, or its hold had not been
// lost for as long as the documentation says; and the calls that were missing.
func (rec *recorded) judgeOverruns() (violations []string) {
	known := make(map[string]bool)
	for _, o := range rec.Overruns {
		if reason := rec.objection(o, known[o.Of]); reason != "" {
			violations = append(violations, fmt.Sprintf("OnOverrun was called for %s at %v (%v): %s", o.Of, o.At, o.Cause,
				reason))
		}
		known[o.Of] = true
	}
	for _, o := range rec.Overstays {
		if o.mustBeTold() && !known[o.Of] {
			violations = append(violations, fmt.Sprintf("OnOverrun was not called for %s: its function went on for %v "+
				"after the loss (%v), until %v", o.Of, o.For, o.Cause, o.At))
		}
	}
	return violations
}

// mustBeTold reports whether a function has gone on for so long that OnOverrun had to be called before it returned.
func (o overrun) mustBeTold() bool {
	due := mostGrace + tellDelay
	switch o.Cause {
	case 0, holdfast.CauseClosed: // the program has released the hold, or closed its session
		return false
	case holdfast.CauseKicked:
		due += kickGrace
	default:
	}
	return o.For >= due
}

// objection says why a call had no reason, or "".
func (rec *recorded) objection(o overrun, again bool) string {
	i := slices.IndexFunc(rec.Record.Holds, func(h *oracle.Hold) bool {
		return nameOf(h.Parts[0].Prefix, h.Token) == o.Of
	})
	if i < 0 {
		return "no worker held that"
	}
	h := rec.Record.Holds[i]
	grace, reasons := leastGrace, rec.reasons(h, o)
	switch {
	case o.Cause == holdfast.CauseKicked && !reasons[holdfast.CauseRemoved]:
		grace += kickGrace
	case o.Cause == holdfast.CauseNotDrained:
		grace = drainTimeout
	}
	returned, has := rec.Returned[o.Of]
	switch {
	case again:
		return "it was called before"
	case has && o.At-returned > tellDelay && !rec.stopped(h.Process, returned, o.At):
		return fmt.Sprintf("the function had returned %v before", o.At-returned)
	case !reasons[o.Cause]:
		return "etcd's history has no reason for that"
	case o.At-h.Last < grace:
		return fmt.Sprintf("Check had returned nil %v before", o.At-h.Last)
	}
	return ""
}

// reasons returns for which causes a hold may have been lost before a call, by etcd's history. A lease may expire for
// its holder, and a function outlive its context, of which etcd knows nothing. A leader that was stopped may not know a
// lease that its successor has granted: the session takes that for a revocation, and then revokes the lease itself.
func (rec *recorded) reasons(h *oracle.Hold, o overrun) map[holdfast.Cause]bool {
	all := map[holdfast.Cause]bool{holdfast.CauseExpired: true, holdfast.CauseNotDrained: true}
	for _, c := range rec.Record.Changes {
		if string(c.Kv.Key) != h.Key || c.Revision <= h.AcquiredAt {
			continue
		}
		if c.After > o.At {
			all[holdfast.CauseRevoked] = all[holdfast.CauseRevoked] || c.Deleted
			continue
		}
		switch v, _ := layout.DecodeValue(c.Kv.Value); {
		case c.Deleted && c.Prev.GetCreateRevision() == h.Token.Revision():
			all[holdfast.CauseRevoked], all[holdfast.CauseEntryDeleted], all[holdfast.CauseKeyDeleted] = true, true, true
		case !c.Deleted && c.Kv.CreateRevision == h.Token.Revision() && v.Notice.Given():
			all[v.Notice.Cause()] = true
		}
	}
	return all
}

// stopped reports whether a process, or the judge's, did not run for a part of an interval.
func (rec *recorded) stopped(process string, from, to time.Duration) bool {
	return slices.ContainsFunc(rec.gaps, func(f oracle.Fault) bool {
		return f.Process == process && f.From < to && f.To > from && f.To-f.From >= busy
	}) || slices.ContainsFunc(rec.Faults, func(f fault) bool {
		return f.What == stopsProcess && f.Process == process && f.From < to && f.To > from
	}) || slices.ContainsFunc(rec.Record.Faults, func(f oracle.Fault) bool {
		return f.Process == oracle.Everywhere && f.From < to && f.To > from
	})
}
