package locker_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// The function of docs/choosing.md, which shows it.

// guide: invoice

func invoice(ctx context.Context, sess *session.Session, month string) error {
	key := "invoices/" + month
	mu := locker.NewMutex(sess, key)
	return mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		found, err := lk.Client().Get(ctx, key)
		if err != nil || len(found.Kvs) > 0 {
			return err // nil: it exists, and nothing has to be computed
		}
		text, err := compute(ctx, month)
		if err != nil {
			return err
		}
		_, err = etcdfence.NewWriter(lk).Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)). // the first one stays
			Then(clientv3.OpPut(key, text)).
			Commit()
		return err
	})
}

// guide: end

func compute(ctx context.Context, month string) (string, error) {
	fmt.Println("computed:", month)
	return "100 EUR", ctx.Err()
}

// Two processes want the same invoice; one computes it.
func ExampleMutex_Do_createOnce() {
	cli, mine, theirs, end := example()
	defer end()

	ctx := context.Background()
	for _, sess := range []*session.Session{mine, theirs} {
		if err := invoice(ctx, sess, "2026-01"); err != nil {
			log.Fatal(err)
		}
	}
	resp, err := cli.Get(ctx, "invoices/2026-01")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored:", string(resp.Kvs[0].Value))
	// Output:
	// computed: 2026-01
	// stored: 100 EUR
}
