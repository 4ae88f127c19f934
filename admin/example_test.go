package admin_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// On call: who holds billing/job-7, and what happens to it next.
func Example() {
	ctx := context.Background()
	srv := etcdfake.New(nil) // in memory; with a real one: clientv3.New
	defer srv.Close()
	cli := srv.Link().Client()
	sess, err := session.New(ctx, cli, &session.Options{Owner: "worker-a", Anonymous: true,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Panic(err)
	}
	defer sess.Close(ctx)
	lk, err := locker.NewMutex(sess, "billing/job-7").Lock(ctx)
	if err != nil {
		log.Panic(err)
	}

	adm := admin.New(cli, nil)
	q, err := adm.Show(ctx, admin.Lock, "billing/job-7")
	if err != nil {
		log.Panic(err)
	}
	if h, held := q.Holder(); held {
		fmt.Printf("%s is held by %s, token %d, %d waiting\n", q.Name, h.Owner, h.Token, q.Waiting())
	}
	for ev, err := range adm.Watch(ctx, admin.Lock, "billing/job-7") {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(ev.What, "by", ev.Entry.Owner)
		if ev.What == admin.Acquired {
			if err := lk.Unlock(ctx); err != nil {
				log.Panic(err)
			}
		}
		if ev.What == admin.Released {
			break
		}
	}
	// Output:
	// billing/job-7 is held by worker-a, token 3, 0 waiting
	// queued by worker-a
	// acquired by worker-a
	// released by worker-a
}
