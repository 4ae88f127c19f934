package election_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// A panic is not swallowed: when no caller is left to whom it could go on, it
// ends the process, as it would on any goroutine of the user's. Seen from
// outside, in this test binary run again.
func TestPanicOfAStragglerEndsTheProcess(t *testing.T) {
	t.Parallel()
	const inside = "HOLDFAST_TEST_STRAGGLER" // the endpoints
	endpoints := os.Getenv(inside)
	if endpoints == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestPanicOfAStragglerEndsTheProcess$")
		cmd.Env = append(os.Environ(), inside+"="+etcdtest.Start(t).Endpoints()[0])
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !strings.Contains(string(out), "a bug of the straggler's") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoints}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	el := election.New(open(t, cli, session.Options{}), "x").With(opts{DrainTimeout: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	err = el.RunWhileLeader(ctx, "v", func(context.Context, *election.Term) error {
		cancel()
		<-release
		panic("a bug of the straggler's")
	})
	if !errors.Is(err, election.ErrNotDrained) {
		t.Fatal(err)
	}
	close(release)
	<-deadline(t).Done()
}
