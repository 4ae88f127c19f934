package lease

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxTrusted bounds how long a renewal is trusted. A cluster with lease checkpoints may resume a longer lease with less
// than its TTL.
const maxTrusted = 300 * time.Second

// Origin is etcd's reply to the request for a lease.
type Origin struct {
	ID      clientv3.LeaseID
	Key     string        // its session key
	Cluster uint64        // the ID of the cluster that answered
	TTL     time.Duration // as granted
	Margin  time.Duration // taken off the TTL; 0: the larger of TTL/10 and 200 ms
	Sent    time.Duration // when the request was sent, by the clock of the lease

	Observer func(Step) // see Observe; nil: none
}

// trustFor returns how long a renewal is trusted if its reply has this TTL.
func (g Origin) trustFor(ttl time.Duration) time.Duration {
	return min(g.TTL, ttl, maxTrusted) - g.Margin
}

// trusted returns the trust by the Grant, or by a renewal, with this TTL in the reply. from is when the request was
// sent: etcd starts to count later.
func (g Origin) trusted(from, ttl time.Duration) trust { return trust{from, from + g.trustFor(ttl)} }

// trust is the time for which a lease is trusted, by its clock.
type trust struct {
	from  time.Duration // send time of the last confirmed renewal, at first of the Grant
	until time.Duration // trusted-until
}

// length returns for how long the lease is trusted after a renewal was sent.
func (t trust) length() time.Duration { return t.until - t.from }

// suspendAt returns when the lease becomes suspended: half of the trusted time after the last confirmed renewal. The
// same rule covers a paused process, since the clock counts the pause.
func (t trust) suspendAt() time.Duration { return t.from + (t.until-t.from)/2 }

// evidence has the replies kept until a renewal counts, one of each kind, and how the last renewals went.
type evidence struct {
	ack     *reply           // to a renewal
	proof   *reply           // to a linearizable request; it found the lease
	failure error            // of the last failed renewal
	left    time.Duration    // trusted time, when the latest renewal was confirmed
	trips   [3]time.Duration // what the last renewals took; 0: there were less
	trip    int              // where the next goes
}

// reply is a member's reply.
type reply struct {
	sent time.Duration // when the request was sent, by the clock of the lease
	took time.Duration
	ttl  time.Duration // of a renewal
	term uint64        // of Raft
}

// Acknowledge records the reply to a renewal.
func (l *Lease) Acknowledge(sent, ttl time.Duration, term uint64) {
	l.heardReply(Acknowledged, &l.ack, reply{sent: sent, ttl: ttl, term: term})
}

// Prove records the reply to a linearizable read of the session key, if that has found it, or to the key's put.
func (l *Lease) Prove(sent time.Duration, term uint64) {
	l.heardReply(Proved, &l.proof, reply{sent: sent, term: term})
}

// heardReply keeps a reply, unless the reply to a later request came before. It renews the lease if it keeps two
// replies of the same term.
func (l *Lease) heardReply(a Action, kept **reply, r reply) {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	r.took = now - r.sent
	l.Say(Step{Action: a, At: now, Sent: r.sent, Term: r.term})
	if r.sent <= l.trust.from || *kept != nil && r.sent < (*kept).sent {
		return
	}
	*kept = &r
	l.judgeLocked(now)
}

// judgeLocked renews the lease by the kept replies, or drops the reply of the earlier term.
func (l *Lease) judgeLocked(now time.Duration) {
	ack, proof := l.ack, l.proof
	switch {
	case ack == nil || proof == nil:
	case l.lost != nil || now >= l.trust.until: // a holder may have been told of the loss
	// The later term leads, and only a reply of the same term can count beside it. For example, the reply to one of two
	// requests gets lost, and a leader is elected:
	//
	//	sent at 10: a renewal and a read · at 11 the reply to the renewal, of term 5 · the read is not answered
	//	sent at 13: another read · at 14 its reply, of term 6: the reply to the renewal is dropped
	//	sent at 14: another renewal · at 15 its reply, of term 6: trusted from 13, the earlier of both
	case ack.term < proof.term:
		l.ack = nil
	case ack.term > proof.term:
		l.proof = nil
	default:
		// Since the earlier send etcd has given the lease its full TTL: by the renewal, or as a new leader does.
		from := min(ack.sent, proof.sent)
		l.left = l.trust.until - now
		l.trips[l.trip] = max(ack.took, proof.took)
		l.trip = (l.trip + 1) % len(l.trips)
		l.ack, l.proof = nil, nil // no reply counts twice
		l.confirmLocked(now, l.origin.trusted(from, ack.ttl))
	}
}

// Answered reports whether the lease keeps the reply to a renewal, and the reply to a read, that were sent since then.
func (l *Lease) Answered(since time.Duration) (ack, proof bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ack != nil && l.ack.sent >= since, l.proof != nil && l.proof.sent >= since
}

// RenewedSince reports whether a renewal has counted with requests sent since then, and how much trusted time was left
// when the latest did.
func (l *Lease) RenewedSince(since time.Duration) (left time.Duration, renewed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left, l.trust.from >= since && l.lost == nil
}

// UntilRenewal returns the time until the next renewal; zero or less when it is due.
func (l *Lease) UntilRenewal() time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trust.from + period(l.trust.length(), l.longestTripLocked()) - now
}

// TooLong returns how long renewals take, if each of them is so slow that it comes after the suspension; otherwise 0.
func (l *Lease) TooLong() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	// If a round trip takes a quarter of the trusted time, the next renewal is sent at a quarter, and answered at half:
	// then the lease is suspended.
	if longest := l.longestTripLocked(); 4*longest > l.trust.length() {
		return longest
	}
	return 0
}

// TTLFor returns the TTL to choose where a round trip to etcd takes that long: six of them, in whole seconds, 2 s at
// least.
func TTLFor(roundTrip time.Duration) time.Duration {
	// With the default margin 4.5 do; the rest leaves room for larger margins, and for a round trip that takes half as
	// long again.
	return max(2*time.Second, (6*roundTrip + time.Second - 1).Truncate(time.Second))
}

// BeganSlowly reports whether the reply to the Grant was so slow that the first renewal, sent when it is due, would be
// answered after the suspension.
func (l *Lease) BeganSlowly() bool { return l.Remaining() < l.Trust()*7/8 }

func (l *Lease) longestTripLocked() time.Duration { return max(l.trips[0], l.trips[1], l.trips[2]) }

// period returns the time from one confirmed renewal to the next, send to send. trusted is how long the lease is
// trusted, trip how long a renewal takes. By default it is three eighths of the trusted time, about a third of the TTL.
func period(trusted, trip time.Duration) time.Duration {
	// A renewal must last until the next is confirmed: for a period and a round trip, less than half of the trusted time,
	// where the suspension begins. So long round trips make the period shorter, and leave half a round trip to spare.
	//
	//	trusted for 12 s, suspended after 6 · round trip 1 s: sent at 0, 4.5, 9 · 5.5 s old at most
	//	                                    · round trip 2 s: sent at 0, 3, 6   · 5 s old at most
	//	                                    · round trip 3 s: sent at 0, 3, 6   · 6 s old: suspended
	//
	// No renewal is sent before the reply to the last. Two side by side would bear longer round trips, but they would make
	// an etcd slower that is slow for lack of power, until all sessions are lost.
	return min(trusted*3/8, max(trusted/2-trip*3/2, trusted/8))
}
