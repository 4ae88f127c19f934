package etcdtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
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
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := link.Client().Put(ctx, "a", "1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v, want DeadlineExceeded", err)
	}
	kvs := srv.WaitForKeys(t, "a", 1)
	if kvs[0].Version != 1 {
		t.Fatalf("it was sent %d times", kvs[0].Version)
	}
	link.Heal()
	mustPut(t, link.Client(), "a", "2")
}

func TestLoseReplyOnlyOfWhatSucceeds(t *testing.T) {
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

func TestHealForgetsWhatHasNotHappened(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	link.LoseRequest("Put", 0)
	link.LoseReply("Put", 3, codes.Unavailable)
	link.Stall("Put")
	link.Heal()
	mustPut(t, link.Client(), "a", "")
}

func TestHoldDeliversAfterTheCallerHasGone(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	direct, link := srv.Client(t), srv.Link(t)
	held := link.Hold("Put", putsTo("a"))
	link.Heal() // does not end it
	if held.Request() != nil {
		t.Error("there is a request before there is one")
	}
	ctx, cancel := context.WithCancel(withTimeout(t))
	defer cancel()
	done := make(chan error, 1)
	go func() { // ends with ctx
		_, err := link.Client().Put(ctx, "a", "late")
		done <- err
	}()
	wait(t, held.Arrived())
	if got := string(held.Request().(*pb.PutRequest).Value); got != "late" {
		t.Errorf("the request on hold puts %q", got)
	}
	mustPut(t, link.Client(), "b", "") // others are not held
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("the caller got %v", err)
	}
	link.Heal() // does not deliver
	mustPut(t, direct, "a", "early")
	held.Deliver()
	held.Deliver()
	wait(t, held.Delivered())
	reply, err := held.Reply()
	if err != nil {
		t.Fatal(err)
	}
	if rev := reply.(*pb.PutResponse).Header.Revision; rev != 4 {
		t.Errorf("carried out at revision %d, want 4: as the last one", rev)
	}
	if got := mustGet(t, direct, "a"); got != "late" {
		t.Fatalf("a = %q, want what came late", got)
	}
}

// TestHoldDeliversAsTheCallerGoes is for the race detector.
func TestHoldDeliversAsTheCallerGoes(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	for i := range 20 {
		held := link.Hold("Put")
		ctx, cancel := context.WithCancel(withTimeout(t))
		var both sync.WaitGroup
		both.Go(func() {
			<-held.Arrived()
			cancel()
		})
		both.Go(func() {
			<-held.Arrived()
			held.Deliver()
		})
		if _, err := link.Client().Put(ctx, "a", fmt.Sprint(i)); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		both.Wait()
		wait(t, held.Delivered())
		if got := mustGet(t, link.Client(), "a"); got != fmt.Sprint(i) {
			t.Fatalf("a = %q, want %d", got, i)
		}
	}
}

func TestHoldAnswersACallerWhoWaits(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	mustPut(t, srv.Client(t), "a", "1")
	held := link.Hold("Range")
	go func() { // ends when the read below has arrived
		<-held.Arrived()
		held.Deliver()
	}()
	if got := mustGet(t, link.Client(), "a"); got != "1" {
		t.Fatalf("a = %q, want 1", got)
	}
}

func TestHoldDropped(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	held := link.Hold("Put")
	done := put(t, link.Client(), "a", "1")
	wait(t, held.Arrived())
	held.Drop()
	if err := <-done; !isUnavailable(err) {
		t.Fatalf("error %v, want Unavailable", err)
	}
	wait(t, held.Delivered())
	held.Deliver()
	if kvs := srv.Keys(t, ""); len(kvs) != 0 {
		t.Fatalf("the server has %v", kvs)
	}

	link.Hold("Put").Drop()
	mustPut(t, link.Client(), "a", "2")
	early := link.Hold("Put")
	early.Deliver()
	mustPut(t, link.Client(), "a", "3")
	wait(t, early.Arrived())
}

func TestLateReplyCanBeLost(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	held := link.Hold("Put")
	link.LoseReply("Put", 1, codes.Unavailable)
	done := put(t, link.Client(), "a", "1")
	wait(t, held.Arrived())
	held.Deliver()
	if err := <-done; !isUnavailable(err) {
		t.Fatalf("error %v, want Unavailable", err)
	}
	if _, err := held.Reply(); err != nil {
		t.Fatalf("the server answered %v", err)
	}
}

func TestStallHoldsUnaryRequests(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	link.Stall("Put", "DeleteRange")
	ctx, cancel := context.WithCancel(withTimeout(t))
	cancelled := make(chan error, 1)
	go func() { // ends with ctx
		_, err := link.Client().Put(ctx, "given-up", "")
		cancelled <- err
	}()
	done := put(t, link.Client(), "waited-for", "")
	if err := link.Wait(withTimeout(t), "Put", 2); err != nil {
		t.Fatal(err)
	}
	mustGet(t, link.Client(), "a") // reads pass
	cancel()
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want Canceled", err)
	}
	if kvs := srv.Keys(t, ""); len(kvs) != 0 {
		t.Fatalf("the server has %v", kvs)
	}
	link.Heal()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	srv.WaitForKeys(t, "given-up", 1)
}

// TestStalledRenewalsLetTheLeaseExpire stalls a stream that works, while unary calls go on.
func TestStalledRenewalsLetTheLeaseExpire(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	cli := link.Client()
	lease, err := cli.Grant(withTimeout(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	renewals, err := cli.KeepAlive(t.Context(), lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	<-renewals
	if _, err := cli.Put(withTimeout(t), "a", "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	link.Stall("LeaseKeepAlive")
	sent := link.Count()["LeaseKeepAlive"]
	srv.WaitForKeys(t, "a", 0)
	mustPut(t, cli, "b", "")
	if err := link.Wait(withTimeout(t), "LeaseKeepAlive", sent+1); err != nil {
		t.Fatal(err)
	}
}

func TestStalledStreamGoesOnAfterHealing(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	cli := link.Client()
	for _, revoked := range []bool{false, true} {
		lease, err := cli.Grant(withTimeout(t), 60)
		if err != nil {
			t.Fatal(err)
		}
		sent := link.Count()["LeaseKeepAlive"]
		link.Stall("LeaseKeepAlive") // opening the stream passes, the message does not
		renewed := make(chan error, 1)
		go func() { // ends after Heal
			_, err := cli.KeepAliveOnce(withTimeout(t), lease.ID)
			renewed <- err
		}()
		if err := link.Wait(withTimeout(t), "LeaseKeepAlive", sent+1); err != nil {
			t.Fatal(err)
		}
		for range 50 { // time enough for a stall with a leak
			mustPut(t, cli, "a", "")
		}
		select {
		case err := <-renewed:
			t.Fatalf("a stalled renewal returned %v", err)
		default:
		}
		if revoked {
			srv.Revoke(t, lease.ID)
		}
		link.Heal()
		if err := <-renewed; revoked != errors.Is(err, rpctypes.ErrLeaseNotFound) || !revoked && err != nil {
			t.Fatalf("revoked before it arrived: %v, renewal: %v", revoked, err)
		}
		if n := link.Count()["LeaseKeepAlive"] - sent; n != 1 {
			t.Fatalf("%d renewals sent, want 1", n)
		}
	}
}

func TestStalledWatchHoldsEvents(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	events := link.Client().Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	<-events
	link.Stall("Watch")
	direct := srv.Client(t)
	for i := range 50 {
		mustPut(t, direct, "a", fmt.Sprint(i))
	}
	select {
	case resp := <-events:
		t.Fatalf("an event came: %v", resp)
	default:
	}
	link.Heal()
	var got []string
	for len(got) < 50 {
		for _, ev := range (<-events).Events {
			got = append(got, string(ev.Kv.Value))
		}
	}
	if got[0] != "0" || got[49] != "49" {
		t.Fatalf("events %v", got)
	}
}

func TestStreamGivenUpWhileStalledEnds(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	link.Stall("LeaseKeepAlive")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := link.Client().KeepAliveOnce(ctx, 42)
	if !errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.DeadlineExceeded { // the server keeps time, too
		t.Fatalf("error %v, want DeadlineExceeded", err)
	}
}

func TestClientThatClosesWhileStalledLeavesNothing(t *testing.T) {
	srv := etcdtest.Start(t)
	direct, link := srv.Client(t), srv.Link(t)
	mustPut(t, direct, "a", "")
	others := goleak.IgnoreCurrent()
	cli := link.Client()
	<-cli.Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	link.Stall("Watch")
	for i := range 50 { // the first is received, and held, in this time
		mustPut(t, direct, "a", fmt.Sprint(i))
	}
	cli.Close()
	goleak.VerifyNone(t, others) // the link stands, and is stalled
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
			if _, err := cli.KeepAliveOnce(withTimeout(t), lease.ID); err != nil { // repeats by itself
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
	// The answer that carries an event is lost, and the stream with it.
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

func TestFaultsForWhatDoesNotExistPanic(t *testing.T) {
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

// TestClientOfAServiceIsSubjectToFaults uses DialOptions, as a service that makes its own client would.
func TestClientOfAServiceIsSubjectToFaults(t *testing.T) {
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

func TestCountOfABudget(t *testing.T) {
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
