//go:build kubernetes

package kubelock_test

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

// guide: a controller whose replicas share the objects

const shards = 64

// Reconciler reconciles the objects of the shards that this replica owns.
type Reconciler struct {
	client.Client
	owned [shards]owned
	moved chan event.GenericEvent // objects of a shard that has come to this replica
}

type owned struct {
	mu     sync.RWMutex // each reconciliation holds it for reading
	holder *shard.Shard // nil: another replica's
}

func (o *owned) set(s *shard.Shard) {
	o.mu.Lock() // waits for the reconciliations that run
	defer o.mu.Unlock()
	o.holder = s
}

func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	own := &r.owned[shard.Of(req.String(), shards)]
	own.mu.RLock()
	defer own.mu.RUnlock()
	if own.holder == nil {
		return ctrl.Result{}, nil
	}
	ctx, cancel := own.holder.WithContext(ctx) // ends when the shard is lost
	defer cancel()
	var o corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	token := own.holder.Token()
	text, found := o.Annotations["example.com/token"]
	if last, err := holdfast.ParseToken(text); found && (err != nil || last > token) {
		err = cmp.Or(err, fencing.ErrStale)
		return ctrl.Result{}, fmt.Errorf("written with token %q, and this is %v: %w", text, token, err)
	}
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, "example.com/token", token.String())
	render(&o)
	return ctrl.Result{}, r.Update(ctx, &o) // a conflict, if another replica has written the object since it was read
}

// own is called for each shard that this replica owns. When it has returned, no reconciliation of the shard runs.
func (r *Reconciler) own(ctx context.Context, s *shard.Shard) error {
	r.owned[s.Index()].set(s)
	defer r.owned[s.Index()].set(nil)
	var all corev1.ConfigMapList // from the manager's cache
	if err := r.List(ctx, &all); err != nil {
		return err
	}
	for i := range all.Items {
		o := &all.Items[i]
		if shard.Of(client.ObjectKeyFromObject(o).String(), shards) != s.Index() {
			continue
		}
		select {
		case r.moved <- event.GenericEvent{Object: o}:
		case <-ctx.Done():
		}
	}
	<-ctx.Done()
	return nil
}

func setUp(mgr ctrl.Manager, sess *session.Session, pod string) error {
	r := &Reconciler{Client: mgr.GetClient(), moved: make(chan event.GenericEvent)}
	err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
		WatchesRawSource(source.Channel(r.moved, &handler.EnqueueRequestForObject{})).Complete(r)
	if err != nil {
		return err
	}
	all := shard.New(sess, "shop/config", shards).With(shard.Options{Member: pod, DrainTimeout: 20 * time.Second})
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if err := all.Run(ctx, r.own); ctx.Err() == nil {
			return err // ends the manager, and the container starts again
		}
		return nil
	}))
}

// guide: end
