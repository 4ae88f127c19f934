package permits

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/calls"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/sending"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// Limit is the limit of a semaphore, which the program names and which stands in etcd.
type Limit struct {
	Named int
	host  lease.Env
	at    layout.Queue
}

// New returns the limit of a semaphore. Nothing is read or put.
func New(host lease.Env, at layout.Queue, named int) *Limit { return &Limit{named, host, at} }

// Check returns a *holdfast.ArgumentError if a semaphore cannot have that limit.
func Check(n int) error {
	if layout.ValidLimit(n) {
		return nil
	}
	return &holdfast.ArgumentError{Argument: "n", Reason: fmt.Sprintf("is not between 1 and %d", layout.MaxPermits)}
}

// Err says that the limit in etcd is not the one that the program names, or that a weight is above it.
func (l *Limit) Err(limit, weight int) error {
	return &holdfast.LimitError{Name: l.at.Name, Limit: limit, Named: l.Named, Weight: weight}
}

// Is is true in a Txn while the limit is the one that the program names.
func (l *Limit) Is() clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(l.at.LimitKey()), "=", layout.Limit{Permits: l.Named}.String())
}

// Parse reads the limit's key. nil: the limit was deleted by hand.
func (l *Limit) Parse(kv *mvccpb.KeyValue) (layout.Limit, error) {
	if kv == nil {
		return layout.Limit{}, fmt.Errorf("another client has deleted the limit of semaphore %s at %s; try again: "+
			"the next acquisition puts it", names.Quote(l.at.Name), names.Quote(l.at.LimitKey()))
	}
	now, ok := layout.LimitIn(kv)
	if !ok {
		return now, fmt.Errorf("the limit of semaphore %s at %s is %.64q: put a number from 1 to %d there, such as \"3\"",
			names.Quote(l.at.Name), names.Quote(l.at.LimitKey()), kv.Value, layout.MaxPermits)
	}
	return now, nil
}

// Ensure puts the limit if its key, as it was read, is missing. It returns a *holdfast.LimitError if the program names
// another limit than stands.
func (l *Limit) Ensure(ctx context.Context, kv *mvccpb.KeyValue) (err error) {
	if kv == nil {
		if kv, err = l.put(ctx, 0, l.Named); err != nil {
			return err
		}
	}
	now, err := l.Parse(kv)
	if err == nil && now.Permits != l.Named {
		err = l.Err(now.Permits, 0)
	}
	return err
}

// put puts a limit, if the one in etcd has that mod revision; 0: if there is none. It returns what stands then.
func (l *Limit) put(ctx context.Context, mod int64, n int) (*mvccpb.KeyValue, error) {
	key := l.at.LimitKey()
	put, get := clientv3.OpPut(key, layout.Limit{Permits: n}.String()), clientv3.OpGet(key)
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", mod)
	t := txns.Txn{If: []clientv3.Cmp{unchanged}, Then: []clientv3.Op{put, get}, Else: []clientv3.Op{get}}
	r, err := t.Ask(ctx, l.host.Sender(), sending.Write)
	if err != nil {
		return nil, err
	}
	return r.First(len(r.Responses) - 1), nil
}

// Read reads the limit in etcd; 0 if there is none yet.
func (l *Limit) Read(ctx context.Context) (int, error) {
	kv, err := l.get(ctx)
	if kv == nil {
		return 0, err
	}
	now, err := l.Parse(kv)
	return now.Permits, err
}

func (l *Limit) get(ctx context.Context) (*mvccpb.KeyValue, error) {
	r, err := l.host.Sender().Get(ctx, clientv3.OpGet(l.at.LimitKey()))
	if err != nil {
		return nil, err
	}
	return txns.First(r.Kvs), nil
}

// Resize changes the limit from the one that the program names to another one. It returns a *holdfast.LimitError if the
// limit in etcd is neither.
func (l *Limit) Resize(ctx context.Context, to int) error {
	if err := Check(to); err != nil {
		return err
	}
	return calls.Retry(ctx, l.host, func(ctx context.Context) error {
		kv, err := l.get(ctx)
		for err == nil {
			now := layout.Limit{Permits: l.Named} // if there is none
			if kv != nil {
				now, err = l.Parse(kv)
			}
			switch {
			case err != nil || kv != nil && now.Permits == to:
				return err
			case now.Permits != l.Named:
				return l.Err(now.Permits, 0)
			}
			kv, err = l.put(ctx, now.Mod, to)
		}
		return err
	})
}
