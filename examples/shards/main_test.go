//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

// The program itself fails if a step is not observed.
func TestShardsAreShownAsTheyMove(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	out := demotest.Output(t, "--endpoints", strings.Join(srv.Endpoints(), ","))
	table, summary, all := strings.Cut(out, "\nAll 6 steps were observed")
	if demotest.CheckShown(t, table, true); !all || !strings.Contains(summary, "12 shards moved ") {
		t.Errorf("the last lines:\n%s", out)
	}
	if kvs := srv.Keys(t, ""); len(kvs) > 0 {
		t.Errorf("left behind: %v", kvs)
	}
}
