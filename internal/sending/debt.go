package sending

import "sync"

// debt bounds what copies add to the load of etcd. Each request that is answered pays for one copy. While few copies
// are unpaid, the next request that hangs may send a round of them; otherwise it sends one.
//
// A hung member of three costs a round of three with every third request, and the three that are answered meanwhile pay
// for it. When etcd as a whole is slow, hardly any request is answered, so hardly any round is sent.
type debt struct {
	mu     sync.Mutex // protects what follows
	unpaid int        // copies
	calls  int        // of Once, in flight
}

// few is how many unpaid copies do not keep a session from sending a round. Other requests may move the round robin so
// that every second call meets the hung member: two answers must do then.
const few = 2

func (d *debt) began() { d.add(0, 1) }

func (d *debt) ended() { d.add(0, -1) }

// answered pays for one copy.
func (d *debt) answered() { d.add(-1, 0) }

func (d *debt) add(copies, calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unpaid, d.calls = max(0, d.unpaid+copies), d.calls+calls
}

// borrow returns how many copies a call may send whose latest ones were not answered: a round, or one. A session that
// has many calls in flight may send that many copies, because etcd was fast enough for the calls.
func (d *debt) borrow(round int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unpaid >= max(few, d.calls) {
		return 1
	}
	d.unpaid += round
	return round
}
