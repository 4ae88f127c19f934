package session_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// counts are of the events of a session.
type counts struct{ suspended, lost int }

func (r recorder) told() (n counts) {
	for len(r) > 0 {
		switch ev := <-r; ev.State {
		case holdfast.Suspended:
			n.suspended++
		case holdfast.Lost:
			n.lost++
		case holdfast.Connected, holdfast.Closed:
		}
	}
	return n
}

var shortTTLs = []time.Duration{2 * time.Second, 5 * time.Second, 15 * time.Second}

// trusted is how long a lease of that TTL is trusted.
func trusted(ttl time.Duration) time.Duration { return ttl - ttl/10 }

// A session that begins bears the round trips that one bears that stands: the Grant, the session key and the first
// renewal need not fit into one trusted time.
func TestRoundTripsBelowHalfOfTheTrustedTimeLoseNoSession(t *testing.T) {
	for _, ttl := range shortTTLs {
		for _, percent := range []time.Duration{12, 14, 16, 18, 20, 22, 24, 26, 30, 33, 36, 40, 45, 49} {
			start(t, func(t *testing.T, c *cluster) {
				events := newRecorder()
				half := trusted(ttl) * percent / 200
				c.delay(half, half)
				c.open(t, session.Options{TTL: ttl, OnStateChange: events.record})
				time.Sleep(3*half + ttl) // begun
				begun := events.told()
				time.Sleep(10 * ttl)
				n := events.told()
				if begun.lost+n.lost > 0 {
					t.Errorf("TTL %v, round trips of %d %%: lost %d times at the beginning, %d times later",
						ttl, percent, begun.lost, n.lost)
				}
				if percent < 25 && begun.suspended+n.suspended > 0 {
					t.Errorf("TTL %v, round trips of %d %%: suspended %d times at the beginning, %d times later",
						ttl, percent, begun.suspended, n.suspended)
				}
			})
		}
	}
}

// A session that stands is suspended until it knows that round trips have become long.
func TestSessionAdaptsToRoundTripsThatBecomeLong(t *testing.T) {
	for _, ttl := range shortTTLs {
		for _, percent := range []time.Duration{12, 16, 20, 24} {
			start(t, func(t *testing.T, c *cluster) {
				events := newRecorder()
				c.open(t, session.Options{TTL: ttl, OnStateChange: events.record})
				time.Sleep(ttl)
				half := trusted(ttl) * percent / 200
				c.delay(half, half)
				time.Sleep(2 * ttl)
				first := events.told()
				time.Sleep(10 * ttl)
				if n := events.told(); first.suspended > 1 || first.lost+n.suspended+n.lost > 0 {
					t.Errorf("TTL %v, round trips of %d %%: %+v in two TTLs, then %+v", ttl, percent, first, n)
				}
			})
		}
	}
}

// Of round trips that are too long a session warns, and says which TTL bears them.
func TestRoundTripsThatAreTooLongAreWarnedOf(t *testing.T) {
	for _, ttl := range shortTTLs {
		start(t, func(t *testing.T, c *cluster) {
			var log bytes.Buffer
			events := newRecorder()
			half := trusted(ttl) * 33 / 200
			c.delay(half, half)
			logger := slog.New(slog.NewTextHandler(&log, nil))
			c.open(t, session.Options{TTL: ttl, OnStateChange: events.record, Logger: logger})
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			n := events.told()
			said := log.String()
			choose := fmt.Sprintf("choose a TTL of at least %v", lease.TTLFor(2*half))
			if warnings := strings.Count(said, choose); n.suspended < 5 || warnings < n.suspended-1 {
				t.Errorf("TTL %v: suspended %d times, %d warnings with %q:\n%s", ttl, n.suspended, warnings, choose, said)
			}
		})
	}
}

func TestTTLThatIsChosenByTheRoundTripBearsIt(t *testing.T) {
	for _, trip := range []time.Duration{
		time.Millisecond, 300 * time.Millisecond, 620 * time.Millisecond, 1700 * time.Millisecond, 4 * time.Second,
	} {
		start(t, func(t *testing.T, c *cluster) {
			events, ttl := newRecorder(), lease.TTLFor(trip)
			c.delay(trip/2, trip/2)
			c.open(t, session.Options{TTL: ttl, OnStateChange: events.record})
			time.Sleep(20 * ttl)
			if n := events.told(); n != (counts{}) {
				t.Errorf("round trip %v, TTL %v: %+v", trip, ttl, n)
			}
			if lower := ttl - time.Second; trip > time.Second/2 && 6*trip < lower {
				t.Errorf("round trip %v: TTL %v, and %v would do", trip, ttl, lower)
			}
		})
	}
}
