package main

import (
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestServiceRefusesTheLateDeposit(t *testing.T) {
	t.Parallel()
	demotest.CheckShown(t, demotest.Output(t), true)
}

func TestHttpfenceLeavesNothingInEtcd(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	demotest.Output(t, "--endpoints", srv.Endpoints()[0])
	if kvs := srv.Keys(t, ""); len(kvs) > 0 {
		t.Errorf("left behind: %v", kvs)
	}
}
