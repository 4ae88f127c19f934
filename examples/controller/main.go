// Controller is a process of which any number of replicas run, and one works. It has what Kubernetes asks for: probes,
// and a leader that drains when it is asked to end.
//
//	go run ./examples/controller
//	go run ./examples/controller --endpoints host1:2379,host2:2379 --name node-1
//
// With a Ctrl-C, or SIGTERM, in round 2:
//
//	 time  who       what                                                                   token
//	0.05s  node-1    answers http://127.0.0.1:8080/readyz and /leader
//	0.05s  node-1    leads                                                                      3
//	0.05s  node-1    begins round 1                                                             3
//	1.05s  node-1    has finished round 1                                                       3
//	1.05s  node-1    begins round 2                                                             3
//	1.70s  node-1    is asked to end
//	2.05s  node-1    has finished round 2                                                       3
//	2.05s  node-1    has left the election: the next in the queue leads at once
//
// To see one replica follow another, in three terminals, with an etcd that outlives both:
//
//	go run ./examples/etcd    # prints its address
//	go run ./examples/controller --endpoints 127.0.0.1:… --name node-1
//	go run ./examples/controller --endpoints 127.0.0.1:… --name node-2 --listen 127.0.0.1:8081
//
// Meanwhile, of each:
//
//	curl -i 127.0.0.1:8080/readyz    # 200: connected to etcd, leading or not; for a readinessProbe
//	curl -i 127.0.0.1:8080/leader    # 200 in the replica that leads, 503 in the others
//
// docs/kubernetes.md has the manifest.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/session"
)

var (
	name   = flag.String("name", cmp.Or(os.Getenv("POD_NAME"), "node-1"), "of this replica; default $POD_NAME")
	listen = flag.String("listen", "127.0.0.1:8080", "`address` of the probes; in a pod \":8080\"")
	drain  = flag.Duration("drain", 20*time.Second, "how long a leader may take to end: the DrainTimeout")
	takes  = flag.Duration("takes", time.Second, "how long a round takes")
)

const status = "examples/controller/status" // a key that the leader writes

func main() { demo.Main(run) }

// probe answers 200 while ok, and 503 otherwise.
func probe(ok func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ok() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}

// run runs until ctx ends, which it does on SIGTERM and SIGINT.
func run(ctx context.Context, d *demo.Demo) error {
	d.Header()
	sess, err := session.New(ctx, d.Client, session.Options{Owner: *name})
	if err != nil {
		return err // the container starts again
	}
	defer sess.Close(ctx)

	el := election.New(sess, "examples/controller").With(election.Options{Value: *name, DrainTimeout: *drain})
	probes := http.NewServeMux()
	var term atomic.Pointer[election.Term] // the latest of this replica
	leads := func() bool { t := term.Load(); return t != nil && t.Check() == nil }
	probes.Handle("/readyz", probe(func() bool { return sess.Check() == nil }))
	probes.Handle("/leader", probe(leads))
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: probes, ReadHeaderTimeout: 5 * time.Second}
	go srv.Serve(l) // until Close: the probes answer while the leader drains, too
	defer srv.Close()
	d.Row(*name, 0, demo.Plain, "answers http://%s/readyz and /leader", l.Addr())

	defer context.AfterFunc(ctx, func() { d.Row(*name, 0, demo.Dim, "is asked to end") })()
	err = el.Run(ctx, func(ctx context.Context, t *election.Term) error {
		term.Store(t)
		return lead(ctx, d, t)
	})
	if errors.Is(err, election.ErrNotDrained) || !errors.Is(err, context.Canceled) {
		return err // ErrNotDrained: lead has not returned within DrainTimeout
	}
	d.Row(*name, 0, demo.Plain, "has left the election: the next in the queue leads at once")
	return nil
}

// lead is the work, for one term. Its context ends when the term is lost, and on SIGTERM. Then it finishes the round
// that has begun: Run resigns when lead has returned, so the next leader does not work beside it.
func lead(ctx context.Context, d *demo.Demo, t *election.Term) error {
	d.Row(t.Value(), t.Token(), demo.Good, "leads")
	round, cancel := t.WithContext(context.WithoutCancel(ctx)) // ends with the term alone
	defer cancel()
	for n := 1; ctx.Err() == nil; n++ {
		d.Row(t.Value(), t.Token(), demo.Plain, "begins round %d", n)
		switch err := reconcile(round, t, n); {
		case err == nil:
			d.Row(t.Value(), t.Token(), demo.Plain, "has finished round %d", n)
		case passes(t, err):
			d.Row(t.Value(), t.Token(), demo.Bad, "round %d: %v", n, err)
		default:
			return err // Run logs it if the term was lost, and campaigns again; else it resigns and returns it
		}
	}
	return nil
}

// passes reports whether the next round makes up for the error, as after a short outage of etcd: a write was not
// answered, refused by an etcd that has too much to do, or not sent because the session was suspended, and the term is
// not lost.
func passes(t *election.Term, err error) bool {
	if !errors.Is(err, holdfast.ErrOutcomeUnknown) && !errors.Is(err, holdfast.ErrSuspended) &&
		etcderr.Classify(err) != etcderr.Transient {
		return false
	}
	now := t.Check()
	return now == nil || errors.Is(now, holdfast.ErrSuspended)
}

// reconcile is one round: it compares what is with what should be, and makes up the difference. What it writes is
// fenced, so that a paused leader writes nothing when it continues.
func reconcile(ctx context.Context, t *election.Term, n int) error {
	select {
	case <-time.After(*takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := etcdfence.NewWriter(t).Put(ctx, status, fmt.Sprintf("round %d of %s", n, t.Value()))
	return err
}
