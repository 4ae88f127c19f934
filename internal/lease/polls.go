package lease

import "time"

// SlowPoll is the time between two polls of a hold whose lease is watched. With a TTL of 15 s the lease is renewed a
// little more often, and the read that proves that polls.
const SlowPoll = 5500 * time.Millisecond

// takes is how long it takes until the poll of a new hold is answered. By then a copy has gone to another member.
const takes = 250 * time.Millisecond

// PollInterval is the time between two polls of a hold while its lease is not watched. The first poll is sent at most
// so long after the request by which it is held; if the reply to that comes later, at once. So half a lock delay is
// left for the reply to a poll. With a lock delay of more than 2 s the interval is 1 s.
func PollInterval(lockDelay time.Duration) time.Duration {
	if lockDelay > 0 {
		return min(lockDelay/2, time.Second)
	}
	return time.Second
}

// ToldWithin is Value.ToldWithin of a session with that lock delay: the first entry of a queue may have to wait for
// the delay before it holds, and six seconds later its holder has been told: a SlowPoll, until the nearest look whether
// to poll a quarter of a second at most, and a quarter of a second for the reply.
func ToldWithin(lockDelay time.Duration) time.Duration {
	return lockDelay + SlowPoll + takes + takes
}

// LookLasts is for how long an attempt may begin to hold by a look at its entries, from the time at which the request
// for that was sent. Right after the look an administrator may have removed an entry, which is then gone within
// ToldWithin. By then a poll of the hold must have been answered. It is sent within a PollInterval of the grant;
// another one is left for a poll that is in flight then.
func LookLasts(lockDelay time.Duration) time.Duration {
	return ToldWithin(lockDelay) - 2*PollInterval(lockDelay) - takes
}
