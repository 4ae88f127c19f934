package etcdtest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdtest"
)

func TestHoldDeliversAfterTheCallerHasGivenUp(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	direct, link := srv.Client(t), srv.Link(t)
	held := link.Hold("Put", putsTo("a"))
	link.Heal() // does not end the hold
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

// This is for the race detector.
func TestHoldDeliversWhileTheCallerGivesUp(t *testing.T) {
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

func TestHeldReplyReachesACallerThatWaits(t *testing.T) {
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

func TestHeldRequestCanBeDropped(t *testing.T) {
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

	never := link.Hold("Put")
	never.Drop()
	wait(t, never.Delivered())
	if _, err := never.Reply(); !isUnavailable(err) {
		t.Errorf("dropped before it came: %v", err)
	}
	mustPut(t, link.Client(), "a", "2")
	early := link.Hold("Put")
	early.Deliver()
	mustPut(t, link.Client(), "a", "3")
	wait(t, early.Arrived())
}

func TestReplyToAHeldRequestCanBeLost(t *testing.T) {
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

// Etcd's client hears of a failure by an option only.
func TestOptionsOfAHeldRequestAreToldHowItEnds(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	for name, end := range map[string]func(*etcdtest.Held){
		"lost": (*etcdtest.Held).Deliver, "dropped": (*etcdtest.Held).Drop,
	} {
		link := srv.Link(t)
		held := link.Hold("Put")
		if name == "lost" {
			link.LoseReply("Put", 1, codes.Unavailable)
		}
		var told error
		option := grpc.OnFinish(func(err error) { told = err })
		done := make(chan error, 1)
		ctx := withTimeout(t)
		go func() { // received below
			r := &pb.PutRequest{Key: []byte("a"), Value: []byte("1")}
			_, err := pb.NewKVClient(link.Client().ActiveConnection()).Put(ctx, r, option)
			done <- err
		}()
		wait(t, held.Arrived())
		end(held)
		if err := <-done; !isUnavailable(err) || !isUnavailable(told) {
			t.Errorf("%s: the call returns %v, and its option is told %v", name, err, told)
		}
	}
}
