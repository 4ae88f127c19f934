package queue

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/leak"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { leak.Main(m) }

// entriesX is the prefix of the entries of lock x.
var entriesX = kit.Entries("x")

var (
	lostReply = etcdfake.Fate{LoseReply: true}
	silence   = etcdfake.Fate{LoseRequest: true, Silent: true}
)

// process is a Process with queues.
type process struct{ *kit.Process }

func start(t *testing.T, srv *etcdfake.Server, change ...func(*session.Options)) *process {
	t.Helper()
	return &process{kit.Start(t, srv, change...)}
}

// logTo has a session log to b.
func logTo(b *bytes.Buffer) func(*session.Options) {
	return func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(b, nil)) }
}

// queue is the queue of a lock.
func (p *process) queue(lock string) *Queue { return New(p.Host, "lock", lock) }

// queueAt is the queue of a foreign prefix.
func (p *process) queueAt(prefix string) *Queue { return At(p.Host, "lock", prefix) }

func mustAcquire(t *testing.T, q *Queue) *Hold { return mustAcquireAs(t, q, Request{}) }

func mustAcquireAs(t *testing.T, q *Queue, r Request) *Hold {
	t.Helper()
	h, err := q.Acquire(kit.Within(t, time.Minute), r)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// result is what Acquire returned, and when.
type result struct {
	h   *Hold
	err error
	at  time.Time
}

// acquireLater acquires on a goroutine that ends with ctx.
func acquireLater(ctx context.Context, q *Queue) <-chan result {
	done := make(chan result, 1)
	go func() {
		h, err := q.Acquire(ctx, Request{})
		done <- result{h, err, time.Now()}
	}()
	return done
}

// granted receives a hold whose entry must be the first.
func granted(t *testing.T, srv *etcdfake.Server, done <-chan result) result {
	t.Helper()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	if !isFirst(srv, r.h) {
		t.Errorf("%s is held, and in etcd stand %v", r.h.Key(), srv.Keys(r.h.Queue().at.Entries))
	}
	return r
}

// isFirst reports whether the hold's entry is the first of its queue in etcd.
func isFirst(srv *etcdfake.Server, h *Hold) bool {
	kvs := srv.Keys(h.Queue().at.Entries)
	return len(kvs) > 0 && string(kvs[0].Key) == h.Key() && kvs[0].CreateRevision == h.Token().Revision()
}

func mustRelease(t *testing.T, h *Hold) {
	t.Helper()
	if err := h.Release(kit.Within(t, time.Minute)); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// delayed checks whether the lock delay has passed between the deletion of the entry
// at key and a grant.
func delayed(t *testing.T, r result, srv *etcdfake.Server, key string, want bool) {
	t.Helper()
	after := r.at.Sub(kit.DeletedAt(t, srv, key))
	if want && (after < kit.LockDelay || after > kit.LockDelay+kit.Prompt) || !want && after > kit.Prompt {
		t.Errorf("granted %v after the entry ahead had left; lock delay %v", after, want)
	}
}

// notBefore checks that an entry stood for that long before it was granted.
func notBefore(t *testing.T, srv *etcdfake.Server, r result, d time.Duration) {
	t.Helper()
	history := srv.History(r.h.Key())
	i := slices.IndexFunc(history, func(c etcdfake.Change) bool { return c.Revision == r.h.Token().Revision() })
	if stood := r.at.Sub(history[i].At); stood < d || stood > d+kit.Prompt {
		t.Errorf("granted %v after its entry was put, want %v", stood, d)
	}
}

// used returns how many keys a queue's session has in use.
func (q *Queue) used() int {
	q.shared.keys.mu.Lock()
	defer q.shared.keys.mu.Unlock()
	return len(q.shared.keys.inUse)
}
