// Package queuetest is the kit for tests of the queue, and of locks made with it, in
// virtual time: processes with a session each, on an etcd in memory.
//
//	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
//		p := queuetest.Start(t, srv)
//		p.PlanOne("remove", etcdfake.Fate{LoseReply: true})
//		...
//	})
package queuetest

import "time"

// The settings of each Process. Tests compute what they expect from these.
const (
	// OneWay is how long a request or a reply travels. It is not 0: what takes no
	// time happens in an order that no event can be placed into.
	OneWay = 5 * time.Millisecond

	// TTL and Margin of the leases, which are trusted for the difference, Trust. After
	// half of that a session is suspended.
	TTL    = 15 * time.Second
	Margin = 1500 * time.Millisecond
	Trust  = TTL - Margin

	// LockDelay is session.Options.LockDelay.
	LockDelay = time.Second

	// ToldWithin is after how long a holder has been told in any case that its entry is gone.
	ToldWithin = LockDelay + 6*time.Second

	// CloseTimeout is session.Options.CloseTimeout.
	CloseTimeout = 5 * time.Second

	// Prompt is more than a few round trips, and less than any delay.
	Prompt = LockDelay / 4
)
