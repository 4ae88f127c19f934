package etcdtest_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// The smallest TTL is 1.5 election timeouts, rounded up.
func TestSmallestTTLFollowsFromTheTicks(t *testing.T) {
	t.Parallel()
	for ticks, want := range map[bool]int64{false: 1, true: 2} {
		srv := etcdtest.Start(t, etcdtest.Options{DefaultTicks: ticks})
		lease, err := srv.Client(t).Grant(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if lease.TTL != want {
			t.Errorf("DefaultTicks %v: granted a TTL of %d s, want %d s", ticks, lease.TTL, want)
		}
	}
}
