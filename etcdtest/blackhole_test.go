package etcdtest_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/holdfast-go/holdfast/etcdtest"
)

func TestBlackHoleHoldsRequests(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	direct, link := srv.Client(t), srv.Link(t)
	mustPut(t, link.Client(), "a", "1")

	link.BlackHole()
	done := put(t, link.Client(), "a", "2")
	if err := link.Wait(withTimeout(t), "Put", 2); err != nil {
		t.Fatal(err)
	}
	for i := range 50 { // long enough to notice a leak
		mustPut(t, direct, "other", fmt.Sprint(i))
	}
	if got := mustGet(t, direct, "a"); got != "1" {
		t.Fatalf("in a black hole a became %q", got)
	}
	select {
	case err := <-done:
		t.Fatalf("in a black hole a put returned %v", err)
	default:
	}

	link.Heal()
	if err := <-done; err != nil {
		t.Fatalf("the put that was held: %v", err)
	}
	if got := mustGet(t, direct, "a"); got != "2" {
		t.Fatalf("after healing a = %q, want 2", got)
	}
}

func TestBlackHoleAcceptsConnections(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	link.BlackHole()
	cli := link.Client() // not connected yet
	done := put(t, cli, "a", "1")
	conn := cli.ActiveConnection()
	for state := conn.GetState(); state != connectivity.Connecting; state = conn.GetState() {
		if state == connectivity.TransientFailure {
			t.Fatal("the connection was refused")
		}
		conn.WaitForStateChange(withTimeout(t), state)
	}
	link.Heal()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestBlackHoleHidesAStopOfTheServer(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	conn := dial(t, link)
	fmt.Fprint(conn, "GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n")
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	link.BlackHole()
	srv.Stop()
	ends := make(chan error, 2)
	for _, c := range []net.Conn{conn, dial(t, link)} { // an open connection, and one that cannot be established
		go func() { // ends with the connection
			_, err := io.Copy(io.Discard, c)
			ends <- err
		}()
	}
	mustPut(t, etcdtest.Start(t).Client(t), "a", "") // long enough to notice a leak
	select {
	case err := <-ends:
		t.Fatalf("the end of a connection passed the black hole: %v", err)
	default:
	}
	link.Heal()
	<-ends
	<-ends
}

func TestStopDoesNotWaitForClientsInABlackHole(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	<-link.Client().Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	link.BlackHole()
	start := time.Now()
	srv.Stop()
	if d := time.Since(start); d > 4*time.Second { // it takes milliseconds; a graceful stop would take more than 5 s
		t.Errorf("Stop took %v", d)
	}
}

func TestBlackHoleRepliesCarriesOutRequests(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	mustPut(t, link.Client(), "warm", "")

	link.BlackHoleReplies()
	done := put(t, link.Client(), "a", "1")
	srv.WaitForKeys(t, "a", 1)
	select {
	case err := <-done:
		t.Fatalf("a reply came back: %v", err)
	default:
	}
	link.Heal()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// It sends large requests over one connection, which is held again and again in the middle of a request.
func TestBlackHoleCorruptsNothing(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	cli := link.Client()
	mustPut(t, cli, "0", "")
	conn := cli.ActiveConnection()
	value := strings.Repeat("0123456789abcdef", 32<<10) // 512 KiB: more than a flow-control window of HTTP/2
	const rounds = 10
	for i := range rounds {
		done := put(t, cli, fmt.Sprint(i), value)
		if i%2 == 0 {
			link.BlackHole()
		} else {
			link.BlackHoleReplies()
		}
		if err := link.Wait(withTimeout(t), "Put", i+2); err != nil {
			t.Fatal(err)
		}
		link.Heal()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if state := conn.GetState(); state != connectivity.Ready {
			t.Fatalf("the connection is %v", state)
		}
	}
	for i := range rounds {
		if got := mustGet(t, cli, fmt.Sprint(i)); got != value {
			t.Fatalf("value %d was corrupted", i)
		}
	}
}
