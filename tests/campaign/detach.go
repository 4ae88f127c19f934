//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// mayBeDetached reports whether a hold has one entry, and is released by its own Unlock: that of a function under Do is
// not. The judge knows no MinHold that counts from the release of the hold that goes on.
func mayBeDetached(kind family.Kind, lk family.Lock, minHold time.Duration) bool {
	_, ofDo := lk.(lockOfDo)
	return (kind == family.Writer || kind == family.Reader || kind == permitKind) && !ofDo && minHold == 0
}

// handOver detaches a hold, and has a session of this process go on with it. Its ticket may run out before.
func (w *worker) handOver(end event, lk family.Detachable, parts []oracle.Part, r *rand.Rand) {
	within := time.Second + family.UpTo(r, 3*time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), family.UpTo(r, 3*time.Second)+time.Millisecond)
	ticket, err := lk.Detach(ctx, within)
	cancel()
	end.Detached = err == nil
	if end.Err == "" {
		end.Err = text(err)
	}
	w.say(end)
	if err != nil {
		return
	}
	pauseFor(w.stop, family.UpTo(r, within))
	next := call{who: end.Who + ", attached", kind: end.Kind, parts: parts, acquire: func(ctx context.Context) (
		family.Lock, error,
	) {
		sess := []*session.Session{w.sess, w.former}[r.IntN(2)]
		return family.Attach(ctx, sess, lk, ticket, locker.Options{Owner: end.Who})
	}}
	if on := w.acquireNow(next, family.UpTo(r, 3*time.Second)+time.Millisecond); on != nil {
		began := next.held()
		began.Attached = true
		w.unlock(w.hold(began, on, parts, family.UpTo(r, 2*time.Second), nil, r), on, r)
	}
}
