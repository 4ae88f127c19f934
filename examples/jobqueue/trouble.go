package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/locker"
)

// trouble happens once: to the first worker that begins job 2.
type trouble struct {
	*demo.Demo
	ctx      context.Context // of all workers
	happened atomic.Bool
	worker   string // that it happened to

	once   sync.Once
	redone chan struct{} // closed when another worker has finished the job
}

func (t *trouble) happens(j job) bool { return j.ID == 2 && t.happened.CompareAndSwap(false, true) }

// to revokes the worker's lease, as if it were cut off for longer than the TTL. Its job goes on, because it ignores its
// context, and ends only after another worker has done it.
func (t *trouble) to(w *worker, lk *locker.Lock) error {
	t.worker = w.name
	t.Row(w.name, lk.Token(), demo.Bad, "loses its lease, and does not notice")
	if _, err := t.Client.Revoke(t.ctx, lk.Lease()); err != nil {
		return err
	}
	select {
	case <-t.redone:
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}

func (t *trouble) finished(j job) {
	if j.ID == 2 {
		t.once.Do(func() { close(t.redone) })
	}
}

// check reports whether the worker's late result has replaced the newer one.
func (t *trouble) check(ctx context.Context, q *queue) error {
	result, err := q.result(ctx, 2)
	if err != nil || t.worker == "" {
		return err
	}
	if result == "by "+t.worker {
		return errors.New("the late result of job 2 has replaced the newer one")
	}
	t.Row("database", 0, demo.Good, "job 2 has the newer result: %s", result)
	return nil
}
