package lease

import (
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// An Errand is what those who hold something on a lease want to know of etcd. The read that proves a renewal asks for
// it, so it costs no request.
type Errand struct {
	If []clientv3.Cmp // at most 100

	// Told is given whether the comparisons were true, and when they were sent, by the session's clock. It must return
	// at once. Without a reply, or if etcd refuses the errand, it is not called.
	Told func(sent time.Duration, yes bool)
}

// Errands makes the errands of one lease, one for each renewal.
type Errands struct {
	next     atomic.Pointer[func() *Errand]
	underWay atomic.Bool
}

// Run has each read that proves a renewal of the lease run the errand that next returns; nil: none.
func (e *Errands) Run(next func() *Errand) { e.next.Store(&next) }

// Next returns the errand of the read that is about to be sent, or nil. Over must follow.
func (e *Errands) Next() *Errand {
	next := e.next.Load()
	if next == nil {
		return nil
	}
	errand := (*next)()
	e.underWay.Store(errand != nil)
	return errand
}

// Over records that the read has been answered, or is given up.
func (e *Errands) Over() { e.underWay.Store(false) }

// UnderWay reports whether a read is in flight that runs an errand.
func (e *Errands) UnderWay() bool { return e.underWay.Load() }
