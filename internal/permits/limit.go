package permits

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/sending"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// Limit is the limit of a semaphore, which stands in etcd, as one session knows it.
type Limit struct {
	host  lease.Env
	scope reads.Scope                  // of the permits
	named int                          // the limit that the program names
	seen  atomic.Pointer[layout.Limit] // as it was read last; nil: it was not
}

// New returns the limit of the semaphore at that place, which the program names. Nothing is read or put.
func New(host lease.Env, at layout.Queue, named int) *Limit {
	return &Limit{host: host, scope: reads.Scope{At: at}, named: named}
}

// Named is the limit that the program names.
func (l *Limit) Named() int { return l.named }

// Check returns a *holdfast.ArgumentError if a semaphore cannot have that limit.
func Check(n int) error {
	if layout.ValidLimit(n) {
		return nil
	}
	return &holdfast.ArgumentError{Argument: "n", Reason: fmt.Sprintf("is not between 1 and %d", layout.MaxPermits)}
}

// Err says that the limit in etcd is not the one that the program names, or that a weight is above it.
func (l *Limit) Err(limit, weight int) error {
	return &holdfast.LimitError{Name: l.scope.At.Name, Limit: limit, Named: l.named, Weight: weight}
}

// parse reads the value of the limit's key.
func (l *Limit) parse(kv *mvccpb.KeyValue) (layout.Limit, error) {
	p, ok := layout.LimitIn(kv)
	if !ok {
		return layout.Limit{}, fmt.Errorf("the limit of semaphore %s at %s is %.64q: put two numbers from 1 to %d there, "+
			"such as \"3 3\"", names.Quote(l.scope.At.Name), names.Quote(l.scope.At.LimitKey()), kv.Value, layout.MaxPermits)
	}
	return p, nil
}

// Known is the limit as far as it is known: as it was read last, or as the program names it.
func (l *Limit) Known() layout.Limit {
	if seen := l.seen.Load(); seen != nil {
		return *seen
	}
	return layout.Limit{Permits: l.named, High: l.named}
}

// Is is true in a Txn while that is the limit.
func (l *Limit) Is(p layout.Limit) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(l.scope.At.LimitKey()), "=", p.String())
}

// Ensure takes note of the limit in etcd, and puts it if there is none.
func (l *Limit) Ensure(ctx context.Context, kv *mvccpb.KeyValue) (layout.Limit, error) {
	var err error
	if kv == nil {
		if kv, err = l.put(ctx, 0, layout.Limit{Permits: l.named, High: l.named}); err != nil {
			return layout.Limit{}, err
		}
	}
	p, err := l.parse(kv)
	if err != nil {
		return layout.Limit{}, err
	}
	l.seen.Store(&p)
	return p, nil
}

// WhyRefused returns why etcd has refused to put a permit, by the limit in etcd as it was read: ErrMoved if its mod
// revision is not the one that the put compared; a *holdfast.LimitError if the program names another limit; nil if the
// limit was not the reason.
func (l *Limit) WhyRefused(ctx context.Context, kv *mvccpb.KeyValue, compared int64) error {
	now, err := l.Ensure(ctx, kv)
	switch {
	case err != nil:
		return err
	case now.Permits != l.named:
		return l.Err(now.Permits, 0)
	case now.Mod != compared: // or there was none, and it was put
		return ErrMoved
	default:
		return nil
	}
}

// put puts a limit, if the one in etcd has that mod revision; 0: if there is none. It returns what stands then.
func (l *Limit) put(ctx context.Context, mod int64, p layout.Limit) (*mvccpb.KeyValue, error) {
	key := l.scope.At.LimitKey()
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", mod)
	put, get := clientv3.OpPut(key, p.String()), clientv3.OpGet(key)
	t := txns.Txn{If: []clientv3.Cmp{unchanged}, Then: []clientv3.Op{put, get}, Else: []clientv3.Op{get}}
	resp, err := t.Ask(ctx, l.host.Sender(), sending.Write)
	if err != nil {
		return nil, err
	}
	kv := resp.First(len(resp.Responses) - 1)
	if kv == nil {
		return nil, fmt.Errorf("another client has deleted the limit of semaphore %s at %s; try again: "+
			"the next acquisition puts it", names.Quote(l.scope.At.Name), names.Quote(key))
	}
	return kv, nil
}

// Read reads the limit in etcd; 0 if there is none yet.
func (l *Limit) Read(ctx context.Context) (limit int, err error) {
	resp, err := l.host.Sender().Get(ctx, clientv3.OpGet(l.scope.At.LimitKey()))
	if err != nil || len(resp.Kvs) == 0 {
		return 0, err
	}
	p, err := l.parse(resp.Kvs[0])
	return p.Permits, err
}

// Resize changes the limit from the one that the program names to another one. It returns a *holdfast.LimitError if the
// limit in etcd is neither.
func (l *Limit) Resize(ctx context.Context, to int) error {
	if err := Check(to); err != nil {
		return err
	}
	return calls.Retry(ctx, l.host, func(ctx context.Context) error { return l.tryResize(ctx, to) })
}

func (l *Limit) tryResize(ctx context.Context, to int) error {
	for {
		r, err := txns.Read(ctx, l.host.Sender(),
			clientv3.OpGet(l.scope.At.LimitKey()), l.scope.OldestAheadAt(0, 0, 1))
		if err != nil {
			return err
		}
		from := layout.Limit{Permits: l.named, High: l.named} // there is none
		if kv := r.First(0); kv != nil {
			if from, err = l.parse(kv); err != nil {
				return err
			}
		}
		if from.Permits == to && from.Mod != 0 {
			return nil
		}
		if from.Permits != l.named {
			return l.Err(from.Permits, 0)
		}
		want := layout.Limit{Permits: to, High: max(from.High, to)}
		if oldest := r.First(1); oldest == nil || oldest.CreateRevision > from.Mod {
			want.High = max(from.Permits, to) // at which all were put that stand, and those that come until this is put
		}
		kv, err := l.put(ctx, from.Mod, want)
		if err != nil {
			return err
		}
		if string(kv.Value) == want.String() {
			return nil
		}
	}
}
