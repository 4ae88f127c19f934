package session_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

func exampleClient() (*clientv3.Client, func()) {
	srv := etcdfake.New(etcdfake.Options{})
	return srv.Link().Client(), srv.Close
}

func ExampleNew() {
	cli, end := exampleClient()
	defer end()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // bounds New only
	defer cancel()
	sess, err := session.New(ctx, cli, session.Options{TTL: 10 * time.Second, Namespace: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = sess.Close(context.Background()) }()
	fmt.Println(sess.State(), sess.Remaining() > 5*time.Second)
	// Output: connected true
}

func ExampleSession_Subscribe() {
	cli, end := exampleClient()
	defer end()

	ctx := context.Background()
	sess, err := session.New(ctx, cli, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	events := make(chan session.Event, 10)
	cancel := sess.Subscribe(func(ev session.Event) { events <- ev })
	defer cancel()

	_, _ = cli.Revoke(ctx, sess.Lease()) // an administrator's mistake
	ev := <-events
	fmt.Println(ev.Previous, "->", ev.State)
	ev = <-events
	fmt.Println(ev.Previous, "->", ev.State, "with a new lease:", ev.Lease == sess.Lease())
	_ = sess.Close(ctx)
	ev = <-events
	fmt.Println(ev.Previous, "->", ev.State)
	// Output:
	// connected -> lost
	// lost -> connected with a new lease: true
	// connected -> closed
}

func ExampleSession_Check() {
	cli, end := exampleClient()
	defer end()

	ctx := context.Background()
	sess, err := session.New(ctx, cli, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sess.Check())
	_ = sess.Close(ctx)
	fmt.Println(sess.Check())
	// Output:
	// <nil>
	// session is closed
}

func ExampleSession_Close() {
	cli, end := exampleClient()
	defer end()

	ctx := context.Background()
	sess, err := session.New(ctx, cli, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	lease := sess.Lease()
	fmt.Println(sess.Close(ctx))
	resp, err := cli.TimeToLive(ctx, lease)
	fmt.Println(err, resp.TTL) // -1: the lease is gone, and every entry with it
	// Output:
	// <nil>
	// <nil> -1
}

// Your service's own client, with settings that suit a session.
func ExampleClientConfig() {
	cfg := session.ClientConfig("etcd-1:2379", "etcd-2:2379", "etcd-3:2379")
	// cfg.TLS = …; cfg.Username, cfg.Password = …
	cli, err := clientv3.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cli.Close() }()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	sess, err := session.New(ctx, cli, session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = sess.Close(context.Background()) }()
}
