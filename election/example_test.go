package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/session"
)

// connect starts a session, as a program does once.
func connect() (sess *session.Session, close func()) {
	srv := etcdfake.New(etcdfake.Options{}) // your etcd
	sess, err := session.New(context.Background(), srv.Link().Client(), session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return sess, func() {
		sess.Close(context.Background())
		srv.Close()
	}
}

func ExampleElection_RunWhileLeader() {
	sess, close := connect()
	defer close()
	ctx := context.Background()

	el := election.New(sess, "scheduler").With(election.Options{Value: "node-1"})
	err := el.RunWhileLeader(ctx, func(ctx context.Context, t *election.Term) error {
		// ctx ends when the term is lost; RunWhileLeader waits for this
		// function before it resigns.
		w := etcdfence.NewWriter(t)
		_, err := w.Put(ctx, "scheduler/last-run", "now") // fencing.ErrStale: another candidate leads by now
		fmt.Println(t.Value(), "has led")
		return err
	})
	fmt.Println(err)
	// Output:
	// node-1 has led
	// <nil>
}

func ExampleElection_Run() {
	sess, close := connect()
	defer close()
	ctx, stop := context.WithCancel(context.Background()) // ends at shutdown

	el := election.New(sess, "scheduler").With(election.Options{
		Value:        "node-1",
		DrainTimeout: 10 * time.Second,
	})
	err := el.Run(ctx, func(ctx context.Context, t *election.Term) error {
		stop()       // for this example; a leader would work
		<-ctx.Done() // until it is deposed or told to end
		return nil   // the next term, if it was deposed
	})
	fmt.Println(err)
	// Output:
	// context canceled
}

func ExampleElection_Campaign() {
	sess, close := connect()
	defer close()
	ctx := context.Background()

	term, err := election.New(sess, "scheduler").With(election.Options{Value: "node-1"}).Campaign(ctx)
	if err != nil {
		log.Fatal(err) // a *view.AcquireError: nothing is held
	}
	defer term.Resign(ctx)

	work, cancel := term.WithContext(ctx) // ends with the term
	defer cancel()
	fmt.Println(term.Check(), work.Err(), term.Token() > 0)
	// Output: <nil> <nil> true
}

func ExampleElection_Leader() {
	sess, close := connect()
	defer close()
	ctx := context.Background()
	el := election.New(sess, "scheduler").With(election.Options{Value: "node-1"})

	_, err := el.Leader(ctx)
	fmt.Println(errors.Is(err, election.ErrNoLeader))

	term, err := el.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	leader, err := el.Leader(ctx)
	fmt.Println(leader.Value, leader.Token == term.Token(), err)
	// Output:
	// true
	// node-1 true <nil>
}

func ExampleElection_Watch() {
	sess, close := connect()
	defer close()
	ctx := context.Background()
	el := election.New(sess, "scheduler").With(election.Options{Value: "node-1"})
	term, err := el.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}

	seen := 0
	for leader, err := range el.Watch(ctx) {
		if err != nil {
			log.Fatal(err) // it has ended: ctx, the session, or etcd refuses
		}
		if leader.Token == 0 {
			fmt.Println("no leader")
			break
		}
		fmt.Println(leader.Value, "leads")
		if seen++; seen == 1 {
			err = term.Proclaim(ctx, "node-1, warmed up")
		} else {
			err = term.Resign(ctx)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// node-1 leads
	// node-1, warmed up leads
	// no leader
}

func ExampleElection_Observer() {
	sess, close := connect()
	defer close()
	ctx := context.Background()
	el := election.New(sess, "scheduler").With(election.Options{Value: "node-1"})
	if _, err := el.Campaign(ctx); err != nil {
		log.Fatal(err)
	}

	o, err := el.Observer(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer o.Close()
	view := o.Current() // no RPC: ask as often as you like
	fmt.Println(view.Leader.Value, view.Trusted, view.Age < 15*time.Second)
	// Output: node-1 true true
}

func ExampleTerm_Proclaim() {
	sess, close := connect()
	defer close()
	ctx := context.Background()
	el := election.New(sess, "scheduler").With(election.Options{Value: "starting"})
	term, err := el.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := term.Proclaim(ctx, "10.0.0.7:8080"); err != nil {
		log.Fatal(err)
	}
	leader, err := el.Leader(ctx)
	fmt.Println(leader.Value, leader.Token == term.Token(), err)
	// Output: 10.0.0.7:8080 true <nil>
}

func ExampleTerm_Resign() {
	sess, close := connect()
	defer close()
	ctx := context.Background()
	term, err := election.New(sess, "scheduler").With(election.Options{Value: "node-1"}).Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(term.Resign(ctx))
	fmt.Println(term.Resign(ctx)) // again is harmless
	fmt.Println(term.Check())
	// Output:
	// <nil>
	// <nil>
	// released by its holder
}

func ExampleNewAt() {
	sess, close := connect()
	defer close()
	ctx := context.Background()
	// What "etcdctl elect /legacy/scheduler" and concurrency.NewElection(s,
	// "/legacy/scheduler") take part in.
	term, err := election.NewAt(sess, "/legacy/scheduler").With(election.Options{Value: "node-1"}).Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(term.Check())
	// Output: <nil>
}

func ExampleCheckName() {
	fmt.Println(election.CheckName("billing/scheduler"))
	fmt.Println(election.CheckName("billing//scheduler"))
	// Output:
	// <nil>
	// election name "billing//scheduler": has an empty segment: no leading, trailing or doubled "/"
}

// A process that is not a candidate needs a client, and no session.
func ExampleNewReader() {
	sess, close := connect()
	defer close()
	ctx := context.Background()
	term, err := election.New(sess, "scheduler").With(election.Options{Value: "10.0.0.1:8080"}).Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}

	r := election.NewReader(sess.Client(), "scheduler") // any client of that etcd
	leader, err := r.Leader(ctx)
	fmt.Println(leader.Value, leader.Token == term.Token(), err)

	if err := term.Resign(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = r.Leader(ctx)
	fmt.Println(errors.Is(err, election.ErrNoLeader))
	// Output:
	// 10.0.0.1:8080 true <nil>
	// true
}
