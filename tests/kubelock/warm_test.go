//go:build kubernetes

package kubelock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/holdfast-go/holdfast/contrib/kubelock"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

const objectsListed = 10_000

// configMaps is an API server that lists ConfigMaps of 1 KiB each, in pages, and has no news of them.
func configMaps(t *testing.T) *httptest.Server {
	t.Helper()
	all := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
	all.ResourceVersion = "1"
	text := fmt.Sprintf("%01024d", 0)
	for i := range objectsListed {
		all.Items = append(all.Items, corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("object-", i), ResourceVersion: "1"},
			Data:       map[string]string{"text": text},
		})
	}
	list, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = w.Write(list)
			return
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(api.Close)
	return api
}

// leader is a process with a manager, whose controller runs while it leads.
type leader struct {
	*running
	mgr   manager.Manager
	once  sync.Once
	first chan time.Time // the first reconciliation
}

func startLeader(t *testing.T, srv *etcdtest.Server, api string, warm bool) *leader {
	t.Helper()
	mapper := func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		m := meta.NewDefaultRESTMapper(nil)
		m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
		return m, nil
	}
	mgr, err := manager.New(&rest.Config{Host: api, QPS: -1}, manager.Options{
		Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: logr.Discard(),
		MapperProvider: mapper,
	})
	if err != nil {
		t.Fatal(err)
	}
	sess, err := session.New(t.Context(), srv.Client(t), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sess.Close(context.Background()) })
	r := &leader{mgr: mgr, first: make(chan time.Time, 1)}
	work := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
		r.once.Do(func() { r.first <- time.Now() })
		return ctrl.Result{}, nil
	})
	yes := true
	ctrls := kubelock.NewControllers(election.New(sess, "operator"), func(context.Context) ([]kubelock.Starter, error) {
		c, err := controller.NewUnmanaged("shop", controller.Options{
			Reconciler: work, EnableWarmup: &warm, SkipNameValidation: &yes, Logger: logr.Discard(),
		})
		if err != nil {
			return nil, err
		}
		maps := &handler.TypedEnqueueRequestForObject[*corev1.ConfigMap]{}
		return []kubelock.Starter{c}, c.Watch(source.Kind(mgr.GetCache(), &corev1.ConfigMap{}, maps))
	})
	if err := mgr.Add(ctrls); err != nil {
		t.Fatal(err)
	}
	r.running = start(t, mgr)
	return r
}

// With 10,000 objects, a replica whose controllers were warmed reconciles the first one sooner after a hand-over than
// one that lists them then. Both reconcile; the times are logged, and decide nothing here.
func TestFirstReconcileAfterAHandOver(t *testing.T) {
	api := configMaps(t)
	for _, warm := range []bool{false, true} {
		srv := etcdtest.Start(t)
		first := startLeader(t, srv, api.URL, warm)
		<-first.first
		second := startLeader(t, srv, api.URL, warm)
		srv.WaitForKeys(t, "holdfast/election/operator/@/", 2)
		if warm { // a cold one has nothing to do
			_, err := second.mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{}) // when it has listed all
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(second.first) > 0 {
			t.Error("a candidate reconciles")
		}
		begin := time.Now()
		if err := first.end(); err != nil {
			t.Error(err)
		}
		t.Logf("%d objects, warm %v: the first reconciliation is %v after the leader before it was told to stop",
			objectsListed, warm, (<-second.first).Sub(begin).Round(time.Millisecond))
		if err := second.end(); err != nil {
			t.Error(err)
		}
	}
}

// The workers of a controller of controller-runtime end when the context ends in which it was warmed, and not before.
func TestWarmReplicaLeadsAgainAfterALostTerm(t *testing.T) {
	const candidates = "holdfast/election/operator/@/"
	srv := etcdtest.Start(t)
	r := startLeader(t, srv, configMaps(t).URL, true)
	<-r.first
	srv.RevokeHolder(t, candidates)
	srv.WaitForKeys(t, candidates, 1)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}
