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
	next atomic.Pointer[func() *Errand]
}

// Run has each read that proves a renewal of the lease run the errand that next returns; nil: none.
func (e *Errands) Run(next func() *Errand) { e.next.Store(&next) }

// Next returns the errand of the read that is about to be sent, or nil.
func (e *Errands) Next() *Errand {
	if next := e.next.Load(); next != nil {
		return (*next)()
	}
	return nil
}
