package lease

import "time"

// evidence is what shows that the lease was renewed: the latest replies that no renewal has counted from yet.
type evidence struct {
	ack     *reply           // to a renewal
	proof   *reply           // to a linearizable request that found the lease
	failure error            // of the last failed renewal
	left    time.Duration    // trusted time that was left when the latest renewal was confirmed
	trips   [3]time.Duration // what the last renewals took; 0: there were less
	trip    int              // where the next one goes
}

// reply is a member's reply.
type reply struct {
	sent time.Duration // when the request was sent, by the clock of the lease
	took time.Duration
	ttl  time.Duration // of a renewal
	term uint64        // of Raft
}

// Acknowledge records that a renewal which was sent at that time has been answered.
func (l *Lease) Acknowledge(sent, ttl time.Duration, term uint64) {
	l.heardReply(Acknowledged, &l.ack, reply{sent: sent, ttl: ttl, term: term})
}

// Prove records the reply to a linearizable read of the session key, which has found it, or to the key's put.
func (l *Lease) Prove(sent time.Duration, term uint64) {
	l.heardReply(Proved, &l.proof, reply{sent: sent, term: term})
}

// heardReply keeps a reply, unless a later request was answered before, and has the lease renewed if both replies that
// are kept have the same term. For example, the reply to one of two requests gets lost, and a leader is elected:
//
//	sent at 10: a renewal and a read · at 11 the reply to the renewal, of term 5 · the read is not answered
//	sent at 13: another read · at 14 its reply, of term 6: the reply to the renewal is dropped
//	sent at 14: another renewal · at 15 its reply, of term 6: trusted from 13, the earlier of both
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

// judgeLocked has the lease renewed by the replies that are kept. The one of an earlier term is dropped.
//
// A renewal that is confirmed after trusted-until is too late: a holder may have been told that its lock is lost.
func (l *Lease) judgeLocked(now time.Duration) {
	ack, proof := l.ack, l.proof
	switch {
	case ack == nil || proof == nil || l.lost != nil || now >= l.trust.until:
	case ack.term < proof.term:
		l.ack = nil
	case ack.term > proof.term:
		l.proof = nil
	default:
		from := min(ack.sent, proof.sent)
		l.left = l.trust.until - now
		l.trips[l.trip] = max(ack.took, proof.took)
		l.trip = (l.trip + 1) % len(l.trips)
		l.ack, l.proof = nil, nil // no reply counts twice
		l.confirmLocked(now, l.grant.trusted(from, ack.ttl))
	}
}

// Answered reports which replies to requests sent since then are kept: to a renewal, and to a read.
func (l *Lease) Answered(since time.Duration) (ack, proof bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ack != nil && l.ack.sent >= since, l.proof != nil && l.proof.sent >= since
}

// RenewedSince reports whether a renewal has counted whose requests were sent since then, and how much trusted time was
// left when the latest one did.
func (l *Lease) RenewedSince(since time.Duration) (left time.Duration, renewed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left, l.trust.from >= since && l.lost == nil
}

// UntilRenewal is the time until the next renewal; zero or less when it is due.
func (l *Lease) UntilRenewal() time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trust.from + period(l.trust.length(), l.longestTripLocked()) - now
}

// TooLong returns how long renewals take if that suspends the lease at each of them; otherwise 0.
func (l *Lease) TooLong() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if longest := l.longestTripLocked(); 4*longest > l.trust.length() {
		return longest
	}
	return 0
}

// TTLFor returns the TTL to choose where a round trip to etcd takes that long: six of them, in whole seconds, 2 s at
// least. With the default margin 4.5 do; the others leave room for larger margins, and for a round trip that takes half
// as long again.
func TTLFor(roundTrip time.Duration) time.Duration {
	return max(2*time.Second, (6*roundTrip + time.Second - 1).Truncate(time.Second))
}

// BeganSlowly reports whether the first reply has taken so long that the lease would be suspended before a renewal that
// is sent when it is due could be answered.
func (l *Lease) BeganSlowly() bool { return l.Unconfirmed() > l.Trust()/8 }

func (l *Lease) longestTripLocked() time.Duration { return max(l.trips[0], l.trips[1], l.trips[2]) }

// period returns the time from the sending of a renewal that counts to that of the next one. trusted is how long the
// lease is trusted, trip how long a renewal takes. By default it is three eighths of the trusted time, about a third of
// the TTL.
//
// A renewal must do until the next one is confirmed: for a period and a round trip, less than half of the trusted time,
// where the suspension begins. So long round trips make the period shorter, and leave half a round trip to spare. The
// next renewal is not sent before the one before is answered: two side by side would bear longer round trips, but an
// etcd that is slow for lack of power would get slower by them, until all sessions are lost.
//
//	trusted for 12 s, suspended after 6 · round trip 1 s: sent at 0, 4.5, 9 · 5.5 s old at most
//	                                    · round trip 2 s: sent at 0, 3, 6   · 5 s old at most
//	                                    · round trip 3 s: sent at 0, 3, 6   · 6 s old: suspended
func period(trusted, trip time.Duration) time.Duration {
	return min(trusted*3/8, max(trusted/2-trip*3/2, trusted/8))
}
