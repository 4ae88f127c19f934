package kubelock_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/holdfast-go/holdfast/contrib/kubelock"
	"github.com/holdfast-go/holdfast/etcdfake"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.New(nil)) // the elector logs much
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.StopFlushDaemon()
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := goleak.Find(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
}

const recordKey = "holdfast/kube/shop/operator"

// candidate returns the lock of a candidate with a connection of its own.
func candidate(t *testing.T, link *etcdfake.Link, identity string) *kubelock.Lock {
	t.Helper()
	quiet := kubelock.Options{Logger: slog.New(slog.DiscardHandler)}
	l, err := kubelock.New(link.Client(), "shop/operator", identity, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// of is a record of a leader, as client-go writes it.
func of(identity string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: 15}
}

// elect runs client-go's elector with its usual times until ctx ends. started and stopped are its callbacks.
func elect(
	ctx context.Context, t *testing.T, l *kubelock.Lock, release bool, started func(context.Context), stopped func(),
) {
	t.Helper()
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, Name: "shop/operator", ReleaseOnCancel: release,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: started, OnStoppedLeading: stopped},
	})
	if err != nil {
		t.Error(err)
		return
	}
	e.Run(ctx)
}

// requests counts the requests sent over a connection.
func requests(link *etcdfake.Link) (n int) {
	for _, of := range link.Count() {
		n += of
	}
	return n
}
