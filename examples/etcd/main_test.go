package main

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestEtcdServesUntilItIsInterrupted(t *testing.T) {
	p := demotest.Start(t)
	cli, err := session.NewClient(t.Context(), session.ClientConfig(p.Await(t, `--endpoints (127.0.0.1:\d+)`)[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	if _, err := cli.Put(t.Context(), "a", "b"); err != nil {
		t.Error(err)
	}
	p.Signal(t, os.Interrupt)
	if stdout, stderr, code := p.Wait(); code != 0 || stderr != "" {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}
