package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// On call: who holds billing/job-7, and what happens to it next.
func Example() {
	ctx := context.Background()
	srv := etcdfake.New(etcdfake.Options{}) // in memory; with a real one: clientv3.New
	defer srv.Close()
	cli := srv.Link().Client()
	sess, err := session.New(ctx, cli, session.Options{Owner: "worker-a", Anonymous: true,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Panic(err)
	}
	defer sess.Close(ctx)
	lk, err := locker.NewMutex(sess, "billing/job-7").Lock(ctx)
	if err != nil {
		log.Panic(err)
	}

	adm := admin.New(cli, admin.Options{})
	q, err := adm.Show(ctx, holdfast.KindLock, "billing/job-7")
	if err != nil {
		log.Panic(err)
	}
	if h, held := q.Holder(); held {
		fmt.Printf("%s is held by %s, token %d, %d waiting\n", q.Name, h.Owner, h.Token, q.Waiting())
	}
	for ev, err := range adm.Events(ctx, holdfast.KindLock, "billing/job-7") {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(ev.What, "by", ev.Entry.Owner)
		if ev.What == admin.Acquired {
			if err := lk.Unlock(ctx); err != nil {
				log.Panic(err)
			}
		}
		if ev.What == audit.Released {
			break
		}
	}
	// Output:
	// billing/job-7 is held by worker-a, token 3, 0 waiting
	// queued by worker-a
	// acquired by worker-a
	// released by worker-a
}

// A deploy needs the lock that a job holds. The job is asked to let go: its context ends, Do waits for it, and then the
// lock is free.
func ExampleClient_Kick() {
	ctx := context.Background()
	srv := etcdfake.New(etcdfake.Options{}) // in memory; with a real one: clientv3.New
	defer srv.Close()
	cli := srv.Link().Client()
	sess, err := session.New(ctx, cli, session.Options{Owner: "worker-a", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Panic(err)
	}
	defer sess.Close(ctx)

	working, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- locker.NewMutex(sess, "billing/job-7").Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
			close(working)
			<-ctx.Done() // the job stops here, in good order
			return nil
		})
	}()
	<-working

	adm := admin.New(cli, admin.Options{Owner: "jane", Auditor: audit.Log(slog.New(slog.DiscardHandler))})
	q, err := adm.Show(ctx, holdfast.KindLock, "billing/job-7")
	if err != nil {
		log.Panic(err)
	}
	h, _ := q.Holder()
	if err := adm.Kick(ctx, holdfast.KindLock, "billing/job-7", h.Token, "deploy of 14:00"); err != nil {
		log.Panic(err)
	}
	var kick *holdfast.KickError
	if err := <-done; errors.As(err, &kick) {
		fmt.Println("the job was ended by", kick.By, "for the", kick.Reason)
	}
	err = adm.Kick(ctx, holdfast.KindLock, "billing/job-7", h.Token, "once more")
	fmt.Println(errors.Is(err, admin.ErrNotHeld), err)
	// Output:
	// the job was ended by jane for the deploy of 14:00
	// true kick lock "billing/job-7": token 3: it does not hold any more; none holds now
}

// A holder hangs. Its lock is taken away, with the token that still holds it. What it may still write is refused by a
// fence.
func ExampleClient_Remove() {
	ctx := context.Background()
	srv := etcdfake.New(etcdfake.Options{}) // in memory; with a real one: clientv3.New
	defer srv.Close()
	cli := srv.Link().Client()
	sess, err := session.New(ctx, cli, session.Options{Owner: "worker-a", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Panic(err)
	}
	if _, err := locker.NewMutex(sess, "billing/job-7").Lock(ctx); err != nil { // and its work hangs
		log.Panic(err)
	}

	adm := admin.New(cli, admin.Options{Owner: "jane", Auditor: audit.Log(slog.New(slog.DiscardHandler))})
	for ev, err := range adm.Events(ctx, holdfast.KindLock, "billing/job-7") {
		if err != nil {
			log.Panic(err)
		}
		switch ev.What {
		case admin.Acquired:
			if err := adm.Remove(ctx, holdfast.KindLock, "billing/job-7", ev.Entry.Token, "host is wedged"); err != nil {
				log.Panic(err)
			}
		case audit.Removed:
			fmt.Println(ev.Entry.Notice)
			sess.Close(ctx) // its process is ended; otherwise the name would be free a few seconds later
		case audit.Released:
			fmt.Println("free")
			return
		}
	}
	// Output:
	// being removed by "jane": "host is wedged"
	// free
}

// A dashboard: what is held, by prefix.
func ExampleClient_List() {
	ctx, cli, sessions, end := fleet("worker-a")
	defer end()
	for _, name := range []string{"billing/job-7", "billing/job-8", "search/index"} {
		if _, err := locker.NewMutex(sessions[0], name).Lock(ctx); err != nil {
			log.Panic(err)
		}
	}
	for s, err := range admin.New(cli, admin.Options{}).List(ctx, holdfast.KindLock, "billing/") {
		if err != nil {
			log.Panic(err) // the last element: the list is not complete
		}
		fmt.Printf("%s: %s, %d waiting\n", s.Name, s.Holder.Owner, s.Waiting)
	}
	// Output:
	// billing/job-7: worker-a, 0 waiting
	// billing/job-8: worker-a, 0 waiting
}

// Which processes of the fleet have a session.
func ExampleClient_Sessions() {
	ctx, cli, _, end := fleet("worker-a", "worker-b")
	defer end()
	for s, err := range admin.New(cli, admin.Options{}).Sessions(ctx) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(s.Owner)
	}
	// Output:
	// worker-a
	// worker-b
}

// A program that acts when a lock is lost.
func ExampleClient_Events() {
	ctx, cli, sessions, end := fleet("worker-a")
	defer end()
	if _, err := locker.NewMutex(sessions[0], "billing/job-7").Lock(ctx); err != nil {
		log.Panic(err)
	}
	for ev, err := range admin.New(cli, admin.Options{}).Events(ctx, holdfast.KindLock, "billing/job-7") {
		if err != nil {
			log.Panic(err) // ctx has ended, or reading is not permitted
		}
		fmt.Println(ev.What, "by", ev.Entry.Owner)
		switch ev.What {
		case admin.Acquired:
			if _, err := cli.Revoke(ctx, ev.Entry.Lease); err != nil { // as a crash does after the TTL
				log.Panic(err)
			}
		case audit.Lost:
			return
		}
	}
	// Output:
	// queued by worker-a
	// acquired by worker-a
	// lost by worker-a
}

// fleet returns an etcd client, sessions with these owners, as processes would have, and a function that ends all.
func fleet(owners ...string) (ctx context.Context, cli *clientv3.Client, sessions []*session.Session, end func()) {
	srv := etcdfake.New(etcdfake.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cli = srv.Link().Client()
	for _, owner := range owners {
		sess, err := session.New(ctx, cli, session.Options{Owner: owner, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			log.Panic(err)
		}
		sessions = append(sessions, sess)
	}
	return ctx, cli, sessions, func() {
		for _, sess := range sessions {
			sess.Close(ctx)
		}
		cancel()
		srv.Close()
	}
}
