//go:build kubernetes

package kubelock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

func render(*corev1.ConfigMap) {}

// objects are those of an API server, which refuses an update of what was written since it was read.
type objects struct {
	client.Client // nil: nothing else is called

	mu  sync.Mutex // protects what follows
	all map[client.ObjectKey]corev1.ConfigMap
}

func (a *objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.all[key]
	o.DeepCopyInto(into.(*corev1.ConfigMap))
	return nil
}

func (a *objects) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.all {
		list := into.(*corev1.ConfigMapList)
		list.Items = append(list.Items, *o.DeepCopy())
	}
	return nil
}

func (a *objects) Update(_ context.Context, from client.Object, _ ...client.UpdateOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := from.(*corev1.ConfigMap).DeepCopy()
	key := client.ObjectKeyFromObject(o)
	was := a.all[key]
	if was.ResourceVersion != o.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, o.Name, nil)
	}
	version, _ := strconv.Atoi(o.ResourceVersion)
	o.ResourceVersion = strconv.Itoa(version + 1)
	a.all[key] = *o
	return nil
}

// tokens returns with which token each object was written last.
func (a *objects) tokens() map[client.ObjectKey]holdfast.Token {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[client.ObjectKey]holdfast.Token)
	for key, o := range a.all {
		all[key], _ = holdfast.ParseToken(o.Annotations["example.com/token"])
	}
	return all
}

// replica is a process of the controller, without a manager: it reconciles what its reconciler asks for.
type replica struct {
	*Reconciler
	t     *testing.T
	leave context.CancelFunc
	all   sync.WaitGroup
}

func startReplica(t *testing.T, srv *etcdtest.Server, api *objects, pod string) *replica {
	sess := testkit.Open(t, srv.Client(t), session.Options{})
	r := &replica{Reconciler: &Reconciler{Client: api, moved: make(chan event.GenericEvent)}, t: t}
	ctx, cancel := context.WithCancel(context.Background())
	r.leave = cancel
	r.all.Go(func() { // joined by stop
		for {
			select {
			case ev := <-r.moved:
				r.reconcile(client.ObjectKeyFromObject(ev.Object))
			case <-ctx.Done():
				return
			}
		}
	})
	r.all.Go(func() { // likewise
		all := shard.New(sess, "shop/config", shards).With(shard.Options{Member: pod, DrainTimeout: 5 * time.Minute})
		err := all.Run(ctx, r.own)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", pod, err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *replica) reconcile(key client.ObjectKey) {
	if _, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: key}); err != nil {
		r.t.Errorf("%v: %v", key, err)
	}
}

func (r *replica) stop() {
	r.leave()
	r.all.Wait()
}

// ownsObject reports whether the replica reconciles an object.
func (r *replica) ownsObject(key client.ObjectKey) bool {
	own := &r.owned[shard.Of(key.String(), shards)]
	own.mu.RLock()
	defer own.mu.RUnlock()
	return own.holder != nil
}

// owns returns how many shards the replica owns.
func (r *replica) owns() (n int) {
	for i := range r.owned {
		r.owned[i].mu.RLock()
		if r.owned[i].holder != nil {
			n++
		}
		r.owned[i].mu.RUnlock()
	}
	return n
}

func newObjects(n int) *objects {
	api := &objects{all: make(map[client.ObjectKey]corev1.ConfigMap)}
	for i := range n {
		o := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("config-", i)}}
		api.all[client.ObjectKeyFromObject(&o)] = o
	}
	return api
}

// The objects of a shard are reconciled when it comes to a replica, and by no other.
func TestReplicasShareTheObjects(t *testing.T) {
	srv := etcdtest.Start(t)
	api := newObjects(200)
	a := startReplica(t, srv, api, "a")
	var before map[client.ObjectKey]holdfast.Token
	written := func(keys []client.ObjectKey) bool {
		now := api.tokens()
		return !slices.ContainsFunc(keys, func(key client.ObjectKey) bool { return now[key] <= before[key] })
	}
	all := slices.Collect(maps.Keys(api.tokens()))
	testkit.Eventually(t, "a has reconciled all objects", func() bool { return written(all) })
	before = api.tokens()
	b := startReplica(t, srv, api, "b")
	testkit.Eventually(t, "they share the shards", func() bool { return a.owns() == shards/2 && b.owns() == shards/2 })
	before = api.tokens()
	moving := slices.DeleteFunc(slices.Clone(all), func(key client.ObjectKey) bool { return !a.ownsObject(key) })
	a.stop()
	testkit.Eventually(t, "b owns all shards", func() bool { return b.owns() == shards })
	testkit.Eventually(t, "b has reconciled what was of a", func() bool { return written(moving) })
	now := api.tokens()
	for _, key := range all {
		a.reconcile(key) // not its own any more
	}
	if after := api.tokens(); len(moving) == 0 || !maps.Equal(now, after) {
		t.Errorf("of %d objects some were written by a replica that has left", len(moving))
	}
}

// A shard does not move while one of its objects is reconciled.
func TestShardWaitsForItsReconciliations(t *testing.T) {
	srv := etcdtest.Start(t)
	api := newObjects(1)
	a := startReplica(t, srv, api, "a")
	testkit.Eventually(t, "a owns all shards", func() bool { return a.owns() == shards })
	own := &a.owned[shard.Of("shop/config-0", shards)]
	own.mu.RLock() // as a reconciliation
	b := startReplica(t, srv, api, "b")
	a.leave()
	testkit.Eventually(t, "b owns all others", func() bool { return b.owns() >= shards-1 })
	if err := own.holder.Check(); err != nil || b.owns() != shards-1 {
		t.Errorf("while it is reconciled: Check %v, b owns %d shards", err, b.owns())
	}
	own.mu.RUnlock()
	testkit.Eventually(t, "b owns all", func() bool { return b.owns() == shards })
}

func TestReconcilerThatSharesIsAddedToAManager(t *testing.T) {
	sess := testkit.Open(t, etcdtest.Start(t).Client(t), session.Options{})
	testkit.MustSucceed(t, setUp(newManager(t, manager.Options{}), sess, "a"))
}

func TestStaleReconciliationIsRefused(t *testing.T) {
	srv := etcdtest.Start(t)
	api := newObjects(1)
	key := client.ObjectKey{Namespace: "shop", Name: "config-0"}
	a := startReplica(t, srv, api, "a")
	testkit.Eventually(t, "it was written", func() bool { return api.tokens()[key] > 0 })
	testkit.Eventually(t, "a owns all shards", func() bool { return a.owns() == shards })
	var o corev1.ConfigMap
	testkit.MustSucceed(t, api.Get(t.Context(), key, &o))
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, "example.com/token", (api.tokens()[key] + 1).String())
	testkit.MustSucceed(t, api.Update(t.Context(), &o)) // by the next owner
	if _, err := a.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("%v", err)
	}
}

// An annotation that is no token says nothing about who wrote the object, so it must not pass as an old one.
func TestMalformedAnnotationIsNotOverwritten(t *testing.T) {
	srv := etcdtest.Start(t)
	api := newObjects(1)
	key := client.ObjectKey{Namespace: "shop", Name: "config-0"}
	a := startReplica(t, srv, api, "a")
	testkit.Eventually(t, "it was written", func() bool { return api.tokens()[key] > 0 })
	testkit.Eventually(t, "a owns all shards", func() bool { return a.owns() == shards })
	for _, text := range []string{"", "0", "seven", "99999999999999999999"} {
		var o corev1.ConfigMap
		testkit.MustSucceed(t, api.Get(t.Context(), key, &o))
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, "example.com/token", text)
		testkit.MustSucceed(t, api.Update(t.Context(), &o)) // by hand
		_, err := a.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if err == nil || errors.Is(err, fencing.ErrStale) || api.tokens()[key] != 0 {
			t.Errorf("%q: %v, and the token is now %v", text, err, api.tokens()[key])
		}
	}
}
