package lease

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxTrusted is the longest time for which a renewal is trusted. A cluster with lease checkpoints may resume a longer
// lease with less than its TTL.
const maxTrusted = 300 * time.Second

// Grant is etcd's reply to the request for a lease.
type Grant struct {
	ID      clientv3.LeaseID
	Key     string        // its session key
	Cluster uint64        // the ID of the cluster that answered
	TTL     time.Duration // as granted
	Margin  time.Duration // taken off the TTL; 0: the larger of TTL/10 and 200 ms
	Sent    time.Duration // when the request was sent, by the clock of the lease

	Observer func(Step) // see Observe; nil: none
}

// longest is how long a renewal is trusted whose reply has that TTL.
func (g Grant) longest(ttl time.Duration) time.Duration {
	return min(g.TTL, ttl, maxTrusted) - g.Margin
}

// trusted is for how long the lease is trusted by the Grant or a renewal that was sent at from.
func (g Grant) trusted(from, ttl time.Duration) trust { return trust{from, from + g.longest(ttl)} }

// trust is the time for which a lease is trusted, by its clock.
type trust struct {
	from  time.Duration // send time of the last confirmed renewal, at first of the Grant
	until time.Duration // trusted-until
}

// length is for how long the lease is trusted after the sending of a renewal.
func (t trust) length() time.Duration { return t.until - t.from }

// suspendAt is when the lease becomes suspended: half of the trusted time after the last confirmed renewal. The same
// rule covers a process that was paused, since the clock counts the pause.
func (t trust) suspendAt() time.Duration { return t.from + (t.until-t.from)/2 }
