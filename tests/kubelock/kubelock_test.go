//go:build kubernetes

// Package kubelock_test runs managers of controller-runtime and electors of client-go over a real etcd. Nothing answers
// for the API server: what is tested needs none.
package kubelock_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/contrib/kubelock"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	klog.StopFlushDaemon()
	leak.Main(m)
}

var (
	_ manager.Runnable               = (*kubelock.Runnable)(nil)
	_ manager.LeaderElectionRunnable = (*kubelock.Runnable)(nil)
)

// newManager returns a manager that serves nothing, of a cluster whose API server knows no path.
func newManager(t *testing.T, o manager.Options) manager.Manager {
	t.Helper()
	api := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(api.Close)
	o.Metrics, o.HealthProbeBindAddress, o.Logger = server.Options{BindAddress: "0"}, "0", logr.Discard()
	mgr, err := manager.New(&rest.Config{Host: api.URL}, o)
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

// running is a manager that has been started.
type running struct {
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, mgr manager.Manager) *running {
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel, make(chan error, 1)}
	go func() { r.ended <- mgr.Start(ctx) }() // joined by end
	t.Cleanup(func() { _ = r.end() })
	return r
}

// end stops the manager, and returns the error of Start.
func (r *running) end() error {
	r.stop()
	err := <-r.ended
	r.ended <- err
	return err
}

// work is a Runnable that needs the manager's leader election. It sends its term's token when it runs.
type work struct {
	lock  *kubelock.Lock
	leads chan holdfast.Token
}

func (w *work) Start(ctx context.Context) error {
	w.leads <- w.lock.Term().Token()
	<-ctx.Done()
	return nil
}

func (*work) NeedLeaderElection() bool { return true }

// A Lock in place of the manager's own: the work of the first manager runs, and when that stops, that of the second.
func TestManagersElectThroughALock(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	start := func(identity string) (*running, *work) {
		lock, err := kubelock.New(srv.Client(t), "operator", identity, nil)
		if err != nil {
			t.Fatal(err)
		}
		lease, renew, retry := 15*time.Second, 10*time.Second, 200*time.Millisecond
		mgr := newManager(t, manager.Options{
			LeaderElection: true, LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true,
			LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		})
		w := &work{lock: lock, leads: make(chan holdfast.Token, 1)}
		if err := mgr.Add(w); err != nil {
			t.Fatal(err)
		}
		return start(t, mgr), w
	}
	a, first := start("a")
	token := await(t, first.leads)
	_, second := start("b")
	// While b is a candidate, a renews its record.
	renewals := srv.Client(t).Watch(t.Context(), "holdfast/kube/operator")
	for range 3 {
		for _, ev := range (<-renewals).Events {
			var record resourcelock.LeaderElectionRecord
			if err := json.Unmarshal(ev.Kv.Value, &record); err != nil || record.HolderIdentity != "a" {
				t.Fatalf("%s: %v", ev.Kv.Value, err)
			}
		}
	}
	select {
	case <-second.leads:
		t.Fatal("both lead")
	default:
	}
	if err := a.end(); err != nil {
		t.Errorf("the first manager: %v", err)
	}
	if next := await(t, second.leads); next <= token {
		t.Errorf("token %v after %v", next, token)
	}
}

// The better way: managers without an election of their own, with a Runnable that has a manager in each term. What runs
// in that manager finds the term in its context.
func TestManagersWithARunnable(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	ended := make(chan error, 2)
	start := func(identity string) (*running, chan holdfast.Token) {
		sess, err := session.New(t.Context(), srv.Client(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sess.Close(context.Background()) })
		leads := make(chan holdfast.Token, 1)
		el := election.New(sess, "operator")
		r := kubelock.NewRunnable(el, identity, func(ctx context.Context, term *election.Term) error {
			mgr := newManager(t, manager.Options{BaseContext: func() context.Context { return ctx }})
			reconcile := manager.RunnableFunc(func(ctx context.Context) error {
				h, ok := fencing.FromContext(ctx)
				if !ok || h.Token() != term.Token() {
					return errors.New("the context does not carry the term")
				}
				leads <- h.Token()
				<-ctx.Done()
				if err := term.Check(); err != nil {
					ended <- err // another one may lead already
				}
				return nil
			})
			if err := mgr.Add(reconcile); err != nil {
				return err
			}
			return mgr.Start(ctx)
		})
		mgr := newManager(t, manager.Options{})
		if err := mgr.Add(r); err != nil {
			t.Fatal(err)
		}
		return start(t, mgr), leads
	}
	a, first := start("a")
	token := await(t, first)
	_, second := start("b")
	if err := a.end(); err != nil {
		t.Errorf("the first manager: %v", err)
	}
	if next := await(t, second); next <= token {
		t.Errorf("token %v after %v", next, token)
	}
	select {
	case err := <-ended:
		t.Errorf("the term had ended before its work: %v", err)
	default:
	}
}

func await(t *testing.T, leads chan holdfast.Token) holdfast.Token {
	t.Helper()
	select {
	case token := <-leads:
		return token
	case <-time.After(time.Minute):
		t.Fatal("no work has been started for a minute")
		return 0
	}
}
