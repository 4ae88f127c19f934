package election

import (
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
)

const (
	defaultDrainTimeout = 30 * time.Second
	defaultMaxAge       = 15 * time.Second
)

// Options are policies of an Election. The zero value of every field is its
// default; a value that cannot be used is a *holdfast.ArgumentError from the
// first call, before anything is sent.
type Options struct {
	// DrainTimeout is how long RunWhileLeader and Run wait for the function to
	// return once its context has ended, by the end of the caller's context or
	// of the term. The term, if not lost, is held and its lease renewed
	// meanwhile. After it the term is lost with holdfast.CauseNotDrained, its
	// entry is removed, and the call goes on with ErrNotDrained; the function
	// keeps running. Default 30 s. Too short, and a leader that is cleaning up
	// meets its successor; too long, and a stuck one keeps the others waiting.
	DrainTimeout time.Duration

	// CancelOnSuspended cancels contexts of a term (RunWhileLeader's, Run's and
	// those from Context) as soon as the session is suspended, with cause
	// holdfast.ErrSuspended. By default they are cancelled when the term is
	// lost: work goes on through a short outage of etcd, while fenced writers
	// refuse.
	CancelOnSuspended bool

	// Auditor is told of each grant, release and loss of a term. Default nil:
	// the session's Logger is, at Debug, and of losses at Warn. A grant waits
	// for it; a release and a loss do not, but Close does.
	Auditor audit.Auditor

	// Pause paces Run: what it waits after a campaign that failed and between
	// one term and the next. The pauses start anew after a term that has
	// lasted a second. The zero value is backoff's default (the first up to
	// 10 ms, later ones up to 1 s); Attempt is not used.
	Pause backoff.Policy

	// OnElected is told by Run when a term of its own begins.
	//
	// Run calls its callbacks one at a time, in order, on a goroutine of their
	// own: they may be slow, block or panic (which is logged) without delaying
	// a renewal or a term, so by the time one is called things may have moved
	// on. To act for as long as a term lasts, use Run's function.
	OnElected func(*Term)

	// OnDeposed is told by Run when a term of its own has ended, at the moment
	// its contexts end, and never without an elected before it. The reason is
	// Check's answer: a *holdfast.LostError, or holdfast.ErrReleased after the
	// function has returned.
	OnDeposed func(t *Term, reason error)

	// OnNewLeader is told by Run whenever somebody else, or this candidate, is
	// seen to lead. Of several that wait to be told only the last is; the other
	// callbacks are never dropped.
	OnNewLeader func(Leader)

	// MaxAge is how old an Observer's answer may be and still be trusted.
	// Default 15 s. The observer, and every Observe, makes one read each third
	// of it, beside its watch. At least 30 ms.
	MaxAge time.Duration

	// HealthTolerance is for how long the health handlers go on answering 200
	// while leadership, or the session, cannot be proved: counted from the last
	// confirmed renewal for the session and for a leader that is suspended,
	// and from the end of its context for a function that outlives its term.
	// Default 0: until the session is suspended, which is after about half of
	// its TTL, and not at all for a function that outlives its term.
	HealthTolerance time.Duration
}

func (o Options) check() error {
	bad := func(field, reason string) error {
		return &holdfast.ArgumentError{Argument: "Options." + field, Reason: reason}
	}
	switch {
	case o.DrainTimeout < 0:
		return bad("DrainTimeout", "is negative")
	case o.MaxAge != 0 && o.MaxAge < 30*time.Millisecond:
		return bad("MaxAge", "is less than 30 ms")
	case o.HealthTolerance < 0:
		return bad("HealthTolerance", "is negative")
	}
	if err := o.Pause.Validate(); err != nil {
		return bad("Pause", err.Error())
	}
	return nil
}

func (o Options) drainTimeout() time.Duration {
	if o.DrainTimeout == 0 {
		return defaultDrainTimeout
	}
	return o.DrainTimeout
}

func (o Options) maxAge() time.Duration {
	if o.MaxAge == 0 {
		return defaultMaxAge
	}
	return o.MaxAge
}
