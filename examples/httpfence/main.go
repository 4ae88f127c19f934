// Httpfence has a service whose writes are fenced end to end: a request carries the token of the client's lock, and the
// service's database compares it in the transaction that writes.
//
//	go run ./examples/httpfence
//	go run ./examples/httpfence --endpoints host1:2379,host2:2379
//
// Client A holds the lock of an account and makes deposits. The network keeps one of its requests. Meanwhile A loses
// the lock, and B gets it and writes. Then the late request arrives:
//
//	 time  who       what                                                                   token
//	0.15s  A         deposits 100: the balance is 100                                           4
//	0.15s  network   keeps A's next request, a deposit of 50
//	0.16s  A         loses its lease, and with it the lock; it is told, and gives up
//	0.18s  B         deposits 10: the balance is 110                                            6
//	0.18s  network   delivers A's request
//	0.18s  service   REFUSED: account/42 has had token 6                                        4
//	0.18s  database  the balance is 110: the late deposit was not made
//
// Without the fence the account would have 160: A was told in time, and had stopped, but its request had been sent.
//
// service.go is the service, client.go a client of it, and this file what happens to them. The database is a temporary
// SQLite file.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func main() { demo.Main(run) }

func run(ctx context.Context, d *demo.Demo) error {
	dir, err := os.MkdirTemp("", "httpfence-example")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "accounts.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer db.Close()
	service, err := newService(ctx, db, audit.Func(func(_ context.Context, r audit.Record) {
		d.Row("service", r.Token, demo.Good, "REFUSED: %s has had token %d", r.Resource, r.Mark)
	}))
	if err != nil {
		return err
	}
	network := &network{service: service, arrived: make(chan struct{}), deliver: make(chan struct{}),
		delivered: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: network, ReadHeaderTimeout: 10 * time.Second}
	go srv.Serve(l) // ends with Close
	defer srv.Close()
	url := "http://" + l.Addr().String()

	// Each client would be a process of its own, with its session.
	var sessions [2]*session.Session
	for i, name := range []string{"A", "B"} {
		if sessions[i], err = session.New(ctx, d.Client, session.Options{
			Owner: name, Logger: slog.New(slog.DiscardHandler), // the rows tell it
		}); err != nil {
			return err
		}
		defer sessions[i].Close(ctx)
	}
	tell := func(name string) func(*locker.Lock, int, string) {
		return func(lk *locker.Lock, amount int, balance string) {
			d.Row(name, lk.Token(), demo.Plain, "deposits %d: the balance is %s", amount, balance)
		}
	}

	d.Header()
	ended := make(chan error, 1)
	go func() { ended <- depositAll(ctx, sessions[0], url, "42", []int{100, 50}, tell("A")) }() // received below
	select {
	case <-network.arrived:
	case err := <-ended:
		return fmt.Errorf("A: %w", err)
	}
	d.Row("network", 0, demo.Dim, "keeps A's next request, a deposit of 50")
	if _, err := d.Client.Revoke(ctx, sessions[0].Lease()); err != nil { // as if A were cut off for longer than its TTL
		return err
	}
	if err := <-ended; !errors.Is(err, holdfast.ErrLost) {
		return fmt.Errorf("A: %w, want a lost lock", err)
	}
	d.Row("A", 0, demo.Plain, "loses its lease, and with it the lock; it is told, and gives up")
	if err := depositAll(ctx, sessions[1], url, "42", []int{10}, tell("B")); err != nil {
		return fmt.Errorf("B: %w", err)
	}

	d.Row("network", 0, demo.Dim, "delivers A's request")
	close(network.deliver)
	<-network.delivered
	var balance int
	if err := db.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = '42'").Scan(&balance); err != nil {
		return err
	}
	if balance != 110 {
		d.Row("database", 0, demo.Bad, "the balance is %d", balance)
		return errors.New("the late deposit was made")
	}
	d.Row("database", 0, demo.Good, "the balance is %d: the late deposit was not made", balance)
	return nil
}

// network delivers the second request late, when its client has long given up.
type network struct {
	service                     http.Handler
	requests                    atomic.Int64
	arrived, deliver, delivered chan struct{}
}

func (n *network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n.requests.Add(1) == 2 {
		close(n.arrived)
		<-n.deliver
		r = r.WithContext(context.WithoutCancel(r.Context())) // the request is there, its client is not
		defer close(n.delivered)
	}
	n.service.ServeHTTP(w, r)
}
