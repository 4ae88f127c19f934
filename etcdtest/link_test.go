package etcdtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// put puts a key in a goroutine, which ends with the test at the latest.
func put(t testing.TB, cli *clientv3.Client, key, value string) <-chan error {
	done := make(chan error, 1)
	ctx := withTimeout(t)
	go func() {
		_, err := cli.Put(ctx, key, value)
		done <- err
	}()
	return done
}

func TestCutFailsOnlyTheClientsOfTheLink(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	mustPut(t, link.Client(), "a", "1")

	idle := dial(t, link)
	link.Cut()
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Fatal("an existing connection was not reset")
	}
	late, err := net.Dial("tcp", link.Endpoints()[0])
	if err == nil {
		defer late.Close()
		late.SetDeadline(time.Now().Add(time.Minute))
		_, err = late.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("a new connection: %v, want a reset", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := link.Client().Put(ctx, "a", "2"); err == nil {
		t.Fatal("a put passed the cut")
	}
	if got := mustGet(t, srv.Client(t), "a"); got != "1" {
		t.Fatalf("a = %q, want 1", got)
	}

	link.Heal()
	mustPut(t, link.Client(), "a", "3")
}

func TestCutFailsRequestsInFlight(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	mustPut(t, link.Client(), "a", "1")
	link.BlackHoleReplies()
	done := put(t, link.Client(), "a", "2")
	for mustGet(t, srv.Client(t), "a") != "2" {
	}
	link.Cut()
	if err := <-done; err == nil {
		t.Fatal("the put whose connection was reset succeeded")
	}
}

func TestClientKeepsTryingToConnect(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// With gRPC's default pauses this would take three minutes.
	l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	etcdtest.LinkTo(t, l.Addr().String()).Client().ActiveConnection().Connect()
	for range 10 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

func TestDelayDelaysWithoutLimitingThroughput(t *testing.T) {
	t.Parallel()
	const oneWay = 100 * time.Millisecond
	client, server := pipeThrough(t, func(link *etcdtest.Link) { link.Delay(oneWay) })

	// Latency: a byte forth and back.
	start := time.Now()
	echo := make([]byte, 1)
	go func() { // ends with the connection
		io.ReadFull(server, echo)
		server.Write(echo)
	}()
	client.Write([]byte{42})
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 2*oneWay {
		t.Errorf("there and back took %v, want at least %v", d, 2*oneWay)
	}

	// Throughput: 32 MiB would take 100 s if each chunk waited for the previous one.
	const size = 32 << 20
	start = time.Now()
	go func() { // ends with the connection
		buf := make([]byte, 1<<20)
		for i := range size / len(buf) {
			for j := range buf {
				buf[j] = byte(i + j)
			}
			client.Write(buf)
		}
	}()
	got := make([]byte, size)
	if _, err := io.ReadFull(server, got); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > time.Minute {
		t.Errorf("%d bytes took %v", size, d)
	}
	for k, b := range got {
		if i, j := k>>20, k&(1<<20-1); b != byte(i+j) {
			t.Fatalf("byte %d is %d, want %d", k, b, byte(i+j))
		}
	}
}

func TestHealEndsDelay(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	link.Delay(time.Hour)
	done := put(t, link.Client(), "a", "1")
	link.Heal()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestLinkLeavesNothingBehind(t *testing.T) {
	srv := etcdtest.Start(t)
	mustGet(t, srv.Client(t), "a")
	others := goleak.IgnoreCurrent()
	link, err := srv.NewLink()
	if err != nil {
		t.Fatal(err)
	}
	first := link.Client()
	mustPut(t, first, "a", "1")
	if link.Client() != first {
		t.Error("Client returns different clients")
	}
	second, err := link.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, second, "a", "2")
	held := link.Hold("Put")
	ctx, cancel := context.WithCancel(withTimeout(t))
	go func() { // ends with the client
		<-held.Arrived()
		cancel()
	}()
	if _, err := second.Put(ctx, "a", "3"); err == nil {
		t.Error("a held put succeeded")
	}
	link.Delay(time.Hour)
	link.BlackHole()
	ctx, cancel = context.WithCancel(withTimeout(t))
	done := make(chan error, 1)
	go func() { // ends with ctx
		_, err := second.Put(ctx, "a", "4")
		done <- err
	}()
	if err := link.Wait(ctx, "Put", 4); err != nil {
		t.Fatal(err)
	}
	if err := link.Close(); err != nil {
		t.Fatal(err)
	}
	cancel() // otherwise clientv3 retries for 2.5 s on its closed connection
	if err := <-done; err == nil {
		t.Error("a put in a black hole succeeded")
	}
	if err := link.Close(); err != nil {
		t.Fatalf("Close again: %v", err)
	}
	if _, err := link.NewClient(); err == nil {
		t.Error("a closed link makes clients")
	}
	<-held.Delivered()
	goleak.VerifyNone(t, others)
	if got := mustGet(t, srv.Client(t), "a"); got != "2" {
		t.Errorf("a = %q, want 2", got)
	}
}

func TestLinkToACluster(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	link := c.Link(t)
	if n := len(link.Endpoints()); n != 3 {
		t.Fatalf("%d endpoints", n)
	}
	for i := range 6 { // round robin
		mustPut(t, link.Client(), fmt.Sprint(i), "")
	}
	link.BlackHole()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := link.Client().Get(ctx, "a"); err == nil {
		t.Fatal("one of the members was reached")
	}
	link.Heal()
	leader, err := c.Leader(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	leader.Stop()
	if _, err := c.Leader(withTimeout(t)); err != nil {
		t.Fatal(err)
	}
	mustGet(t, link.Client(), "0")
}

// dial connects to a link by plain TCP. The connection ends with the test.
func dial(t testing.TB, link *etcdtest.Link) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", link.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute)) // limits a test that went wrong
	return conn
}

// pipeThrough returns both ends of a connection through a link to a server that is not etcd.
func pipeThrough(t *testing.T, faults func(*etcdtest.Link)) (client, server net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	link := etcdtest.LinkTo(t, l.Addr().String())
	faults(link)
	client = dial(t, link)
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}
