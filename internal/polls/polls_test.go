package polls

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestHoldsArePolledBeforeARemovedEntryGoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ delay, poll time.Duration }{
		{0, time.Second},
		{500 * time.Millisecond, 250 * time.Millisecond},
		{time.Second, 500 * time.Millisecond},
		{2 * time.Second, time.Second},
		{time.Minute, time.Second},
	} {
		poll, told := Interval(c.delay), ToldWithin(c.delay)
		if poll != c.poll || told != c.delay+6*time.Second {
			t.Errorf("lock delay %v: polled every %v, told within %v", c.delay, poll, told)
		}
		if lasts := LookLasts(c.delay); lasts <= c.delay || lasts+2*takes > told { // a poll may be in flight
			t.Errorf("lock delay %v: a look lasts %v, the entry goes after %v", c.delay, lasts, told)
		}
	}
}
