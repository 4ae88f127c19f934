//go:build linux

package campaign

import (
	"flag"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

var (
	seed  = flag.Uint64("campaign.seed", 1, "seed of the faults, which come as fast as the machine lets them")
	trace = flag.Bool("campaign.trace", false, "print all that is known of each round that fails")
)

func TestMain(m *testing.M) {
	child.Main(runWorker)
	leak.Main(m)
}

// Workers acquire locks of all kinds, and share shards. With one rule taken out by hand, -full failed: no lock delay; a
// reader that passes writers; a permit more than the limit; a lease that is trusted for four seconds longer. A short
// round fails if members want all shards.
func TestLockFamilyOnARealClusterUnderFaults(t *testing.T) {
	dir := t.TempDir()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true, DefaultTicks: true, Dir: dir})
	f := &round{cluster: cluster, history: watchHistory(t, cluster), dir: dir, stats: oracle.NewStats()}
	for range rounds.Long(5, 4, 2) {
		f.links = append(f.links, cluster.Link(t))
	}
	const enough = 10 // locks acquired
	all := rounds.Long(12, 2, 1)
	for number := 0; number < all || f.stats.Counts[oracle.Granted] < enough && number < all+5; number++ {
		f.number, f.length = number, time.Duration(rounds.Long(40, 20, 4))*time.Second
		f.run(t)
	}
	t.Logf("\n%v", f.stats)
	if n := f.stats.Counts[oracle.Granted]; n < enough {
		t.Errorf("the test proves nothing: %d locks were acquired in %d rounds", n, f.stats.Counts["rounds"])
	}
}
