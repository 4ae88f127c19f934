package sending

import "sync"

// debt bounds what copies add to the load of etcd. A round of copies, one for each endpoint, is paid for by the
// requests that are answered later. While few answers are owed, the next request that hangs may send a round; otherwise
// it sends one copy.
//
// While a minority of the members hangs, the requests that are answered between two that hang pay for a round: see
// price. When etcd as a whole is slow, hardly any request is answered, so hardly any round is sent.
type debt struct {
	mu     sync.Mutex // protects what follows
	unpaid int        // answers that are owed
	calls  int        // of Once, in flight
}

// few: a session that owes fewer answers may send a round. Other requests may move the round robin so that every second
// call meets the hung member: two answers must do then.
const few = 2

func (d *debt) began() { d.add(0, 1) }

func (d *debt) ended() { d.add(0, -1) }

// answered lowers what is owed.
func (d *debt) answered() { d.add(-1, 0) }

func (d *debt) add(owed, calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unpaid, d.calls = max(0, d.unpaid+owed), d.calls+calls
}

// borrow returns how many copies a call may send whose latest ones were not answered: a round, or one. A session that
// has many calls in flight may send that many copies, because etcd was fast enough for the calls.
func (d *debt) borrow(round int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unpaid >= max(few, d.calls) {
		return 1
	}
	d.unpaid += price(round)
	return round
}

// price is how many answers pay for a round: of three members one may hang, which every third request meets; of five
// two, which every second or third meets.
func price(round int) int { return round / max(1, (round-1)/2) }
