package election_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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

	el := election.New(sess, "scheduler").With(election.Options{Value: pod, DrainTimeout: 20 * time.Second})
	o, err := el.Observer(ctx)
	if err != nil {
		return err
	}
	defer o.Close()

	probes.Handle("/readyz", el.HealthHandler())
	probes.Handle("/leader", o.LeaderHandler())
	patient := el.With(election.Options{HealthTolerance: 5 * time.Minute})
	probes.Handle("/livez", patient.HealthHandler())
	return el.Run(ctx, lead) // returns when lead has returned, and has resigned: the next one leads at once
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
	for _, path := range []string{"/readyz", "/leader", "/livez"} {
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
	// /livez 200
	// scheduler-1 has cleaned up
}
