package lease_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

const second = time.Second

// Each request was sent twice, and the replies come in any order.
func TestLeaseIsTrustedFromTheEarlierSendOfTheLatestReplies(t *testing.T) {
	ack := func(sent time.Duration, term uint64) func(*lease.Lease) {
		return func(l *lease.Lease) { l.Acknowledge(time.Hour+sent, 10*second, term) }
	}
	read := func(sent time.Duration, term uint64) func(*lease.Lease) {
		return func(l *lease.Lease) { l.Prove(time.Hour+sent, term) }
	}
	type replies []func(*lease.Lease)
	for name, c := range map[string]struct {
		replies replies
		from    time.Duration // 0: the Grant
	}{
		"in order":                 {replies{ack(1*second, 1), read(1*second, 1), ack(2*second, 1)}, second},
		"a renewal without a read": {replies{ack(1*second, 1)}, 0},
		"a read without a renewal": {replies{read(1*second, 1)}, 0},
		"the read was sent before": {replies{ack(2*second, 1), read(1*second, 1)}, second},
		"the later renewal first":  {replies{ack(2*second, 1), ack(1*second, 1), read(2*second, 1)}, 2 * second},
		"the later read first":     {replies{read(2*second, 1), read(1*second, 1), ack(2*second, 1)}, 2 * second},
		"the later pair first": {replies{
			ack(2*second, 1), read(2*second, 1), ack(1*second, 1), read(1*second, 1)}, 2 * second},
		"replies crossed": {replies{
			ack(1*second, 1), ack(2*second, 1), read(1*second, 1), read(2*second, 1)}, second},
		"the read's term is later":   {replies{ack(1*second, 1), read(1*second, 2)}, 0},
		"the read's term is earlier": {replies{ack(1*second, 2), read(1*second, 1)}, 0},
		"a later renewal has the term of the read": {
			replies{ack(1*second, 1), read(1*second, 2), ack(2*second, 2)}, second},
		"a reply counts once": {replies{ack(1*second, 1), read(1*second, 1), read(2*second, 1)}, second},
	} {
		t.Run(name, func(t *testing.T) {
			l, now := granted()
			*now += 3 * second
			for _, reply := range c.replies {
				reply(l)
			}
			if from := 3*second - unconfirmed(l); from != c.from || l.Remaining() != 8*second-3*second+c.from {
				t.Errorf("trusted from %v for %v more, want from %v", from, l.Remaining(), c.from)
			}
		})
	}
}

// The lease is trusted for 8 s.
func TestLongRoundTripsMakeRenewalsMoreFrequent(t *testing.T) {
	for _, c := range []struct {
		trips   []time.Duration
		period  time.Duration
		tooLong time.Duration
	}{
		{nil, 3 * second, 0},
		{[]time.Duration{second / 2}, 3 * second, 0},
		{[]time.Duration{second}, 5 * second / 2, 0},
		{[]time.Duration{2 * second}, second, 0},
		{[]time.Duration{5 * second / 2}, second, 5 * second / 2},
		{[]time.Duration{7 * second}, second, 7 * second},
		{[]time.Duration{2 * second, 0, 0}, second, 0},
		{[]time.Duration{2 * second, 0, 0, 0}, 3 * second, 0},
	} {
		l, now := granted()
		for _, trip := range c.trips {
			*now += second / 4
			sent := *now
			*now += trip
			renew(l, sent, 10*second)
		}
		if period := l.UntilRenewal() + unconfirmed(l); period != c.period || l.TooLong() != c.tooLong {
			t.Errorf("round trips of %v: a renewal each %v, too long: %v; want %+v", c.trips, period, l.TooLong(), c)
		}
	}
}
