package queue

import "time"

// What follows is agreed between the queue, which lets an attempt hold by what it has read, and what polls the entries
// of holds.

// SlowPoll is the time between two polls of a hold whose lease is watched.
const SlowPoll = 5 * time.Second

// ToldWithin is Value.ToldWithin of a session with that lock delay: the first entry of
// a queue may have to wait for the delay before it holds, and six seconds later its
// holder has been told: a SlowPoll, until the next look whether to poll half a second,
// and as much for the reply.
func ToldWithin(lockDelay time.Duration) time.Duration { return lockDelay + SlowPoll + time.Second }

// PollInterval is the time between two looks whether to poll a hold. A hold younger
// than half of that is not polled, so three quarters of the lock delay may pass until
// a poll begins while the lease is not watched, and a quarter is left for its answer.
// A longer lock delay changes nothing.
func PollInterval(lockDelay time.Duration) time.Duration {
	if lockDelay > 0 {
		return min(lockDelay/2, time.Second)
	}
	return time.Second
}

// pollTakes is how long it takes until the poll of a new hold is answered. By then a copy has gone to another member.
const pollTakes = 250 * time.Millisecond

// lookLasts is for how long an attempt may begin to hold by a look at its entries, from the time at which the request
// for that was sent. Right after the look an administrator may have removed an entry, which is then gone within
// ToldWithin. By then a poll of the hold must have been answered, which is sent before it is one and a half intervals
// old.
func (s *shared) lookLasts() time.Duration {
	return ToldWithin(s.lockDelay) - 3*PollInterval(s.lockDelay)/2 - pollTakes
}
