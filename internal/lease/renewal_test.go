package lease_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

const second = time.Second

// Two renewals are under way, and their replies come in any order.
func TestLeaseIsTrustedFromTheEarlierSendOfTheLatestReplies(t *testing.T) {
	ack := func(sent time.Duration, term uint64) func(*lease.Lease) {
		return func(l *lease.Lease) { l.Acknowledge(time.Hour+sent, 10*second, term) }
	}
	read := func(sent time.Duration, term uint64) func(*lease.Lease) {
		return func(l *lease.Lease) { l.Prove(time.Hour+sent, term) }
	}
	for name, c := range map[string]struct {
		replies []func(*lease.Lease)
		from    time.Duration // 0: the Grant
	}{
		"in order":                   {[]func(*lease.Lease){ack(1*second, 1), read(1*second, 1), ack(2*second, 1)}, second},
		"a renewal without a read":   {[]func(*lease.Lease){ack(1*second, 1)}, 0},
		"a read without a renewal":   {[]func(*lease.Lease){read(1*second, 1)}, 0},
		"the read was sent before":   {[]func(*lease.Lease){ack(2*second, 1), read(1*second, 1)}, second},
		"the later renewal first":    {[]func(*lease.Lease){ack(2*second, 1), ack(1*second, 1), read(2*second, 1)}, 2 * second},
		"the later read first":       {[]func(*lease.Lease){read(2*second, 1), read(1*second, 1), ack(2*second, 1)}, 2 * second},
		"the later pair first":       {[]func(*lease.Lease){ack(2*second, 1), read(2*second, 1), ack(1*second, 1), read(1*second, 1)}, 2 * second},
		"replies crossed":            {[]func(*lease.Lease){ack(1*second, 1), ack(2*second, 1), read(1*second, 1), read(2*second, 1)}, 2 * second},
		"the read's term is later":   {[]func(*lease.Lease){ack(1*second, 1), read(1*second, 2)}, 0},
		"the read's term is earlier": {[]func(*lease.Lease){ack(1*second, 2), read(1*second, 1)}, 0},
		"a later renewal has the term of the read": {
			[]func(*lease.Lease){ack(1*second, 1), read(1*second, 2), ack(2*second, 2)}, second},
		"a reply counts once": {[]func(*lease.Lease){ack(1*second, 1), read(1*second, 1), read(2*second, 1)}, second},
	} {
		t.Run(name, func(t *testing.T) {
			l, now := granted()
			*now += 3 * second
			for _, reply := range c.replies {
				reply(l)
			}
			if from := 3*second - l.Unconfirmed(); from != c.from || l.Remaining() != 8*second-3*second+c.from {
				t.Errorf("trusted from %v for %v more, want from %v", from, l.Remaining(), c.from)
			}
		})
	}
}

// The lease is trusted for 8 s.
func TestLongRoundTripsMakeRenewalsMoreFrequent(t *testing.T) {
	for _, c := range []struct {
		trips    []time.Duration
		period   time.Duration
		overlaps bool
		tooLong  bool
	}{
		{nil, 3 * second, false, false},
		{[]time.Duration{second / 2}, 3 * second, false, false},
		{[]time.Duration{second}, 5 * second / 2, false, false},
		{[]time.Duration{8 * second / 5}, 8 * second / 5, false, false},
		{[]time.Duration{2 * second}, second, true, false},
		{[]time.Duration{8 * second / 3}, 4 * second / 3, true, false},
		{[]time.Duration{3 * second}, 3 * second / 2, true, true},
		{[]time.Duration{7 * second}, 3 * second, true, true},
		{[]time.Duration{2 * second, 0, 0}, second, true, false},
		{[]time.Duration{2 * second, 0, 0, 0}, 3 * second, false, false},
	} {
		l, now := granted()
		for _, trip := range c.trips {
			*now += second / 4
			sent := *now
			*now += trip
			renew(l, sent, 10*second)
		}
		period := l.UntilRenewal() + l.Unconfirmed()
		if tooLong := l.TooLong() > 0; period != c.period || l.Overlaps() != c.overlaps || tooLong != c.tooLong {
			t.Errorf("round trips of %v: a renewal each %v, overlapping: %v, too long: %v; want %+v",
				c.trips, period, l.Overlaps(), tooLong, c)
		}
	}
}

func TestNextRenewalIsDueAPeriodAfterTheLatestBegan(t *testing.T) {
	l, now := granted()
	*now += 3 * second
	if l.BeginRenewal() != *now || l.UntilRenewal() != 3*second {
		t.Errorf("in %v", l.UntilRenewal())
	}
}
