package etcdtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// putsTo is a condition on a *pb.PutRequest.
func putsTo(key string) func(any) bool {
	return func(request any) bool { return string(request.(*pb.PutRequest).Key) == key }
}

func isUnavailable(err error) bool { return status.Code(err) == codes.Unavailable }

func TestLoseRequestIsNeverSent(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	cli := link.Client()
	link.LoseRequest("Put", 2)
	for range 2 {
		if _, err := cli.Put(withTimeout(t), "a", "1"); !isUnavailable(err) {
			t.Fatalf("error %v, want Unavailable", err)
		}
	}
	if kvs := srv.Keys(t, ""); len(kvs) != 0 {
		t.Fatalf("the server has %v", kvs)
	}
	mustPut(t, cli, "a", "2") // the third is not lost
	if n := link.Count()["Put"]; n != 3 {
		t.Fatalf("%d puts counted, want 3", n)
	}
}

func TestClientRepeatsReadsWhoseRequestIsLost(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	link.LoseRequest("Range", 2)
	mustGet(t, link.Client(), "a")
	if n := link.Count()["Range"]; n != 3 {
		t.Fatalf("%d reads, want 3", n)
	}
}

func TestLoseReplyIsCarriedOut(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	cli := link.Client()
	link.LoseReply("Txn", 1, codes.Unavailable)
	if _, err := cli.Txn(withTimeout(t)).Then(clientv3.OpPut("a", "1")).Commit(); !isUnavailable(err) {
		t.Fatalf("error %v, want Unavailable", err)
	}
	if got := mustGet(t, srv.Client(t), "a"); got != "1" {
		t.Fatalf("a = %q, want 1", got)
	}
	if _, err := cli.Txn(withTimeout(t)).Then(clientv3.OpPut("a", "2")).Commit(); err != nil {
		t.Fatal(err)
	}
}

func TestLoseReplyLeavesTheCallerWaiting(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	link.LoseReply("Put", 0, codes.DeadlineExceeded)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { // received below
		_, err := link.Client().Put(ctx, "a", "1")
		done <- err
	}()
	srv.WaitForKeys(t, "a", 1)
	select {
	case err := <-done:
		t.Fatalf("the caller got %v", err)
	default:
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want Canceled", err)
	}
	if kvs := srv.Keys(t, "a"); kvs[0].Version != 1 {
		t.Fatalf("it was sent %d times", kvs[0].Version)
	}
	link.Heal()
	mustPut(t, link.Client(), "a", "2")
}

func TestLoseReplyAppliesToSuccessfulRPCs(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	link.LoseReply("LeaseRevoke", 1, codes.Internal)
	if _, err := link.Client().Revoke(withTimeout(t), 42); status.Code(err) == codes.Internal || err == nil {
		t.Fatalf("error %v, want that there is no such lease", err)
	}
	lease, err := link.Client().Grant(withTimeout(t), 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := link.Client().Revoke(withTimeout(t), lease.ID); status.Code(err) != codes.Internal {
		t.Fatalf("error %v, want Internal", err)
	}
}

func TestConditionsChooseTheRequest(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	link.LoseRequest("Put", 1, putsTo("b"))
	mustPut(t, link.Client(), "a", "")
	if _, err := link.Client().Put(withTimeout(t), "b", ""); !isUnavailable(err) {
		t.Fatalf("error %v, want Unavailable", err)
	}
	mustPut(t, link.Client(), "b", "")
}

func TestHealCancelsPendingFaults(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	link.LoseRequest("Put", 0)
	link.LoseReply("Put", 3, codes.Unavailable)
	link.Stall("Put")
	link.Heal()
	mustPut(t, link.Client(), "a", "")
}

func TestLosingAMessageBreaksTheStream(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*etcdtest.Link){
		"request": func(l *etcdtest.Link) { l.LoseRequest("LeaseKeepAlive", 1) },
		"reply":   func(l *etcdtest.Link) { l.LoseReply("LeaseKeepAlive", 1, codes.Unavailable) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := etcdtest.Start(t).Link(t)
			cli := link.Client()
			lease, err := cli.Grant(withTimeout(t), 60)
			if err != nil {
				t.Fatal(err)
			}
			lose(link)
			if _, err := cli.KeepAliveOnce(withTimeout(t), lease.ID); err != nil { // clientv3 repeats it
				t.Fatal(err)
			}
			if n := link.Count()["LeaseKeepAlive"]; n != 2 {
				t.Fatalf("%d renewals sent, want 2", n)
			}
		})
	}
}

func TestBrokenWatchResumes(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	events := link.Client().Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	<-events
	// The reply with the event is lost, and the stream breaks.
	link.LoseReply("Watch", 1, codes.Unavailable, func(answer any) bool {
		return len(answer.(*pb.WatchResponse).Events) > 0
	})
	mustPut(t, srv.Client(t), "a", "1")
	for resp := range events {
		if len(resp.Events) > 0 {
			break
		}
	}
	if n := link.Count()["Watch"]; n != 2 {
		t.Fatalf("%d messages on watches, want 2: create, and create again", n)
	}
}

func TestFaultsForUnknownMethodsPanic(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	for name, order := range map[string]func(){
		"unknown": func() { link.LoseRequest("Transaction", 1) },
		"stream":  func() { link.Hold("Watch") },
	} {
		func() {
			defer func() {
				if msg := fmt.Sprint(recover()); !strings.HasPrefix(msg, "etcdtest: ") {
					t.Errorf("%s: recovered %q", name, msg)
				}
			}()
			order()
		}()
	}
}

func TestDialOptionsApplyFaultsToAServicesOwnClient(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: link.Endpoints(), DialOptions: link.DialOptions(), Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	link.LoseRequest("Put", 1)
	if _, err := cli.Put(withTimeout(t), "a", ""); !isUnavailable(err) {
		t.Fatalf("error %v, want Unavailable", err)
	}
	mustPut(t, cli, "a", "")
	if n := link.Count()["Put"]; n != 2 {
		t.Fatalf("%d puts, want 2", n)
	}
}

func TestCountOfRPCs(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	cli := link.Client()
	mustPut(t, cli, "a", "")
	before := link.Count()
	mustGet(t, cli, "a")
	mustGet(t, cli, "a")
	<-cli.Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	got := link.Count().Since(before)
	if fmt.Sprint(got) != "map[Range:2 Watch:1]" {
		t.Errorf("spent %v", got)
	}
	if got.Total() != 3 {
		t.Errorf("spent %d in all, want 3", got.Total())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("seen enough")
	cancel(why)
	if err := link.Wait(ctx, "Put", 2); !errors.Is(err, why) {
		t.Errorf("waiting for what does not come: %v", err)
	}
}
