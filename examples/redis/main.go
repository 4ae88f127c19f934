//go:build unix

// Redis has writes to Redis or Valkey refused that come from a former holder: a script compares the token with the mark
// of the key, and writes.
//
//	go run ./examples/redis
//	go run ./examples/redis --addr localhost:6379 --endpoints host1:2379,host2:2379
//
// The default is a temporary server, if one is installed (apt-get install redis-server). A withdraws from an account,
// loses the lock, and goes on all the same:
//
//	 time  who       what                                                                   token
//	0.38s  A         withdraws 10: the balance is 90                                            3
//	0.39s  A         loses its lease, and with it the lock                                      3
//	0.40s  B         withdraws 10: the balance is 80                                            7
//	0.40s  A         withdraws 10: REFUSED by its lock (lost)                                   3
//	0.40s  A         the same, paused after that: REFUSED by Redis, the mark is 7               3
//	0.40s  Redis     the balance is 80
//
// Guard in guard.go is the code to copy. The key and its mark are removed again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

var addr = flag.String("addr", "", "`host:port` of a server (default: a temporary one)")

func main() { demo.Main(run) }

// withdraw does what it does for the newest holder of the account's lock only.
func withdraw(ctx context.Context, g *Guard, account string, lk fencing.Holder, amount int) (balance any, err error) {
	claim, err := fencing.Present(lk) // lost, released and suspended holders end here
	if err != nil {
		return nil, err
	}
	return g.Do(ctx, account, claim, "DECRBY", amount)
}

func run(ctx context.Context, d *demo.Demo) error {
	// go-redis sends a request again when its connection breaks, so that it may be done twice. Off for what must not.
	opts := &redis.Options{Addr: *addr, MaxRetries: -1}
	if *addr == "" {
		socket, stop, err := startServer(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		defer stop()
		opts.Network, opts.Addr = "unix", socket
	}
	db := redis.NewClient(opts)
	defer db.Close()
	account := fmt.Sprintf("examples:accounts:%08d", rand.IntN(1e8))
	defer db.Del(context.WithoutCancel(ctx), account, marks+account)
	if err := db.Set(ctx, account, 100, 0).Err(); err != nil {
		return err
	}
	guard := &Guard{DB: db}

	// A and B would be two processes.
	var locks [2]*locker.Lock
	d.Header()
	for i, name := range []string{"A", "B"} {
		sess, err := session.New(ctx, d.Client, session.Options{Owner: name, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer sess.Close(ctx)
		if locks[i], err = locker.NewMutex(sess, "examples/accounts/7").Lock(ctx); err != nil {
			return err
		}
		balance, err := withdraw(ctx, guard, account, locks[i], 10)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		d.Row(name, locks[i].Token(), demo.Plain, "withdraws 10: the balance is %d", balance)
		if name == "A" { // as if it were cut off for longer than its TTL
			if _, err := d.Client.Revoke(ctx, sess.Lease()); err != nil {
				return err
			}
			<-locks[i].Done()
			d.Row(name, locks[i].Token(), demo.Bad, "loses its lease, and with it the lock")
		}
	}

	if _, err := withdraw(ctx, guard, account, locks[0], 10); !errors.Is(err, holdfast.ErrLost) {
		return fmt.Errorf("A without the lock: %w", err)
	}
	d.Row("A", locks[0].Token(), demo.Good, "withdraws 10: REFUSED by its lock (lost)")
	_, err := withdraw(ctx, guard, account, unaware{locks[0]}, 10)
	var below *fencing.MarkError
	if !errors.As(err, &below) {
		return fmt.Errorf("A, unaware: %w", err)
	}
	d.Row("A", locks[0].Token(), demo.Good, "the same, paused after that: REFUSED by Redis, the mark is %d", below.Mark)
	balance, err := db.Get(ctx, account).Int()
	if err != nil {
		return err
	}
	d.Row("Redis", 0, demo.Good, "the balance is %d", balance)
	return nil
}

// unaware is a lock as a process sees it that is paused right after a Check: that said that it is held.
type unaware struct{ *locker.Lock }

func (unaware) Check() error { return nil }
