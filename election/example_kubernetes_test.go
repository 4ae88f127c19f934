package election_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

// The process of docs/kubernetes.md, which shows this function.

// guide: process

// run runs until ctx ends: make it with signal.NotifyContext for SIGTERM. probes is served at :8080.
func run(ctx context.Context, cli *clientv3.Client, pod string, probes *http.ServeMux) error {
	sess, err := session.New(ctx, cli, session.Options{Owner: pod})
	if err != nil {
		return err // the container starts again
	}
	defer sess.Close(context.Background())

	el := election.New(sess, "scheduler").With(election.Options{
		Value: pod, DrainTimeout: 20 * time.Second,
		OnOverrun: func(lost *holdfast.LostError, _ time.Time) { log.Fatalf("lead is still running: %v", lost) },
	})
	var term atomic.Pointer[election.Term] // the latest of this pod
	leads := func() bool { t := term.Load(); return t != nil && t.Check() == nil }
	probes.Handle("/readyz", probe(func() bool { return sess.Check() == nil }))
	probes.Handle("/leader", probe(leads))
	return el.Run(ctx, func(ctx context.Context, t *election.Term) error {
		term.Store(t)
		return lead(ctx, t)
	}) // returns when lead has returned, and has resigned: the next one leads at once
}

// probe answers 200 while ok, and 503 otherwise.
func probe(ok func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ok() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}

// guide: end

var leading = make(chan struct{})

// lead is the leader's work.
func lead(ctx context.Context, t *election.Term) error {
	close(leading)
	<-ctx.Done()
	fmt.Println(t.Value(), "has cleaned up")
	return nil
}

// A pod leads until SIGTERM. Its probes tell that it is ready and leads.
func ExampleElection_Run_kubernetes() {
	srv := etcdfake.New(etcdfake.Options{})
	defer srv.Close()
	ctx, sigterm := context.WithCancel(context.Background())
	probes := http.NewServeMux()
	ended := make(chan error)
	go func() { ended <- run(ctx, srv.Link().Client(), "scheduler-1", probes) }()
	<-leading
	for _, path := range []string{"/readyz", "/leader"} {
		w := httptest.NewRecorder()
		probes.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, w.Code)
	}
	sigterm()
	if err := <-ended; ctx.Err() == nil {
		log.Fatal(err)
	}
	// Output:
	// /readyz 200
	// /leader 200
	// scheduler-1 has cleaned up
}
