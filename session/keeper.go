package session

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// keeper keeps one lease alive: it renews it, watches its session key, and tells its changes of state.
type keeper struct {
	*env
	events *events
	lease  *lease.Lease
	key    sessionKey
}

// keep renews the lease and publishes its changes of state until it is lost. It reports false if Close caused the loss:
// then Close publishes it and revokes the lease.
func (k *keeper) keep() bool {
	var renewals sync.WaitGroup // joined below; they end with the lease
	renewals.Go(k.renew)
	renewals.Go(k.keepClaims)
	last := k.watchdog()
	closed := k.ctx.Err() != nil
	if !closed {
		k.events.lost(k.lease, last)
	}
	renewals.Wait()
	return !closed
}

// watchdog wakes when the result of Lease.Check changes, and publishes the new state. It sends no RPC that could delay
// it. (For the reason of a suspension it asks the connection, for 100 ms at most.) When the lease is lost it returns
// the last state published.
func (k *keeper) watchdog() holdfast.State {
	l, state := k.lease, holdfast.Connected
	timer := time.NewTimer(0) // it may be suspended already, if the session key was put late
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.Renewed():
		case <-l.Context().Done():
			return state
		}
		switch err := l.Check(); {
		case err == nil && state == holdfast.Suspended:
			state = holdfast.Connected
			l.Enter(holdfast.Connected)
			k.events.publish(Event{State: holdfast.Connected, Previous: holdfast.Suspended, Lease: l.ID()})
		case errors.Is(err, holdfast.ErrSuspended) && state == holdfast.Connected:
			state = holdfast.Suspended
			l.Enter(holdfast.Suspended)
			k.explainFailure()
			k.events.publish(Event{
				State: holdfast.Suspended, Previous: holdfast.Connected, Lease: l.ID(), Err: l.Failure(), roundTrip: l.TooLong(),
			})
		}
		timer.Reset(l.UntilChange())
	}
}
