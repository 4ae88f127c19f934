package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/retry"
)

func TestWithConnectionChangesContextErrorsOnly(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	cli := link.Client()
	if _, err := cli.Get(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	timedOut := fmt.Errorf("grant: %w", context.DeadlineExceeded)
	connected := link.Count()
	if err := retry.WithConnection(cli.ActiveConnection(), timedOut); err != timedOut {
		t.Errorf("connected: %v", err)
	}
	if n := link.Count().Since(connected).Total(); n != 0 {
		t.Errorf("%d RPCs while connected, want none", n)
	}
	link.Cut()
	awaitFailure(t, ctx, cli)
	before := link.Count()
	for _, err := range []error{timedOut, context.DeadlineExceeded, fmt.Errorf("ended: %w", context.Canceled)} {
		with := retry.WithConnection(cli.ActiveConnection(), err)
		if !errors.Is(with, etcderr.ErrNotConnected) || !errors.Is(with, err) || with.Error() == err.Error() {
			t.Errorf("%v: %v", err, with)
		}
		if etcderr.Classify(with) != etcderr.Unknown || !etcderr.Retryable(with) {
			t.Errorf("the class changed: %v", with)
		}
		if again := retry.WithConnection(cli.ActiveConnection(), with); again != with {
			t.Errorf("added twice: %v", again)
		}
	}
	if n := link.Count().Since(before).Total(); n != 3 {
		t.Errorf("%d RPCs, want one per error", n)
	}
	for _, err := range []error{nil, errors.New("refused"), holdfast.ErrOutcomeUnknown} {
		if with := retry.WithConnection(cli.ActiveConnection(), err); with != err {
			t.Errorf("%v: %v", err, with)
		}
	}
	if err := retry.WithConnection(nil, timedOut); err != timedOut {
		t.Errorf("without a connection: %v", err)
	}
}

// awaitFailure waits until the client's connection has failed.
func awaitFailure(t *testing.T, ctx context.Context, cli *clientv3.Client) {
	t.Helper()
	conn := cli.ActiveConnection()
	for state := conn.GetState(); state != connectivity.TransientFailure; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			t.Fatalf("the connection is %v", state)
		}
	}
}
