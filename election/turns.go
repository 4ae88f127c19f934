package election

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// turn is who campaigns or leads, of the calls of Run and RunWhileLeader on one session and election. A call with
// Options.Warm does so alone, because Warm must not run beside a function. Calls without it do so side by side.
type turn struct {
	users   int  // calls, and calls of Warm, that go on
	alone   bool // they are one call's
	waiting int  // calls with Warm, which those without it let pass

	failures int       // of functions of Run within steadyTerm, one after the other; maxFailures: or more
	until    time.Time // the next Run begins
}

// maxFailures is after how many the pauses do not grow any more: 10 ms, doubled as often, are more than Retry.Max.
const maxFailures = 30

// begin waits until this call may campaign. The caller calls end after its function has returned.
func (ts terms) begin(ctx context.Context, alone bool) error {
	if ts.within(ctx) {
		return holdfast.ErrReentrant // it might wait for itself
	}
	waits := false
	defer func() {
		if waits {
			ts.count(0, -1)
		}
	}()
	for {
		ts.all.mu.Lock()
		t, changed := ts.turnLocked(), ts.all.changed
		if may := t.users == 0 || !alone && !t.alone && t.waiting == 0; may {
			t.users, t.alone = t.users+1, alone
			ts.all.mu.Unlock()
			return nil
		}
		if alone && !waits {
			waits = true
			t.waiting++
		}
		ts.all.mu.Unlock()
		select {
		case <-changed:
		case <-ts.host.Context().Done():
			return holdfast.ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("%w: another call of this session campaigns or leads, and one of the two has Options.Warm",
				backoff.ContextErr(ctx))
		}
	}
}

// within reports whether ctx is that of a function of this election and session that runs.
func (ts terms) within(ctx context.Context) bool {
	states, _ := ts.list()
	for h := range fencing.Holders(ctx) {
		if t, ok := h.(*Term); ok && states[t].running {
			return true
		}
	}
	return false
}

func (ts terms) join() { ts.count(1, 0) } // Warm runs as long as it likes
func (ts terms) end()  { ts.count(-1, 0) }

// count changes the numbers of the turn, and wakes those that wait.
func (ts terms) count(users, waiting int) {
	ts.all.mu.Lock()
	defer ts.all.mu.Unlock()
	t := ts.turnLocked()
	t.users, t.waiting = t.users+users, t.waiting+waiting
	if t.users == 0 && t.waiting == 0 && t.failures == 0 {
		delete(ts.all.turns, ts.prefix)
	}
	ts.all.changedLocked()
}

func (ts terms) turnLocked() *turn {
	t := ts.all.turns[ts.prefix]
	if t == nil {
		t = &turn{}
		ts.all.turns[ts.prefix] = t
	}
	return t
}

// failed records that a function of Run has returned an error, and ended Run, after it led for that long. A caller that
// calls Run again at once, in a loop, would make a term of each round trip.
func (ts terms) failed(led time.Duration, policy backoff.Policy) {
	ts.all.mu.Lock()
	t := ts.turnLocked()
	t.failures = min(t.failures+1, maxFailures)
	if led >= steadyTerm {
		t.failures = 0
	}
	failures := t.failures
	ts.all.mu.Unlock()

	// Rand is the caller's, and is not called under the mutex.
	pauses := retry.NewPauses(policy.Initial, policy.Max, policy.Multiplier, policy.Rand)
	var pause time.Duration
	for range failures {
		pause = pauses.NextBackOff()
	}
	ts.all.mu.Lock()
	defer ts.all.mu.Unlock()
	ts.turnLocked().until = time.Now().Add(pause)
}

// pause waits as long as earlier failures of functions ask for.
func (ts terms) pause(ctx context.Context) {
	ts.all.mu.Lock()
	var until time.Time
	if t := ts.all.turns[ts.prefix]; t != nil {
		until = t.until
	}
	ts.all.mu.Unlock()
	lease.Sleep(ctx, time.Until(until))
}
