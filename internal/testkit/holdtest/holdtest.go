// Package holdtest is what tests of the queue and of holds have in common: holds in the virtual time of queuetest.
package holdtest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// How the Txns of a session are batched; internal/requests says why.
const (
	MaxInFlight = 4 // more than these wait for a batch
	MaxBatch    = 16
	MaxWait     = time.Millisecond
)

// AtEveryMoment runs a test for each offset from a start to an end: twice or more at the instant at which a message
// arrives, when Go decides which of the two is first, and once between messages. Messages that begin at a multiple of
// OneWay arrive at one, so that all offsets between two of them are one case.
func AtEveryMoment(
	t *testing.T, from, to time.Duration, f func(t *testing.T, srv *etcdfake.Server, offset time.Duration),
) {
	t.Helper()
	atOnce := 3
	if bubble.Race {
		atOnce = 2
	}
	for at := from; at <= to; at += kit.OneWay {
		for _, offset := range append(slices.Repeat([]time.Duration{at}, atOnce), at+kit.OneWay/2) {
			t.Run(fmt.Sprint(offset), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) { f(t, srv, offset) })
			})
		}
	}
}

// EntriesX is the prefix of the entries of lock x.
var EntriesX = kit.Entries("x")

var (
	LostReply = etcdfake.Fate{LoseReply: true}
	Silence   = etcdfake.Fate{LoseRequest: true, Silent: true}
)

// Process is a Process with queues.
type Process struct{ *kit.Process }

func Start(t *testing.T, srv *etcdfake.Server, change ...func(*session.Options)) *Process {
	t.Helper()
	return &Process{kit.Start(t, srv, change...)}
}

// StartReplaced starts a process whose program has replaced the client's KV.
func StartReplaced(t *testing.T, srv *etcdfake.Server) *Process {
	t.Helper()
	return &Process{kit.StartReplaced(t, srv)}
}

// LogTo has a session log to b.
func LogTo(b *bytes.Buffer) func(*session.Options) {
	return func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(b, nil)) }
}

// Queue is the queue of a lock.
func (p *Process) Queue(lock string) *queue.Queue { return queue.New(p.Host, holdfast.KindLock, lock) }

// QueueAt is the queue of a foreign prefix.
func (p *Process) QueueAt(prefix string) *queue.Queue {
	return queue.At(p.Host, holdfast.KindLock, prefix)
}

func MustAcquire(t *testing.T, q *queue.Queue) *hold.Hold { return MustAcquireAs(t, q, hold.Request{}) }

func MustAcquireAs(t *testing.T, q *queue.Queue, r hold.Request) *hold.Hold {
	t.Helper()
	h, err := hold.Acquire(kit.Within(t, time.Minute), q, r)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// AcquireSet queues in each queue of the set, waits, and returns a hold for each, in their order.
func AcquireSet(ctx context.Context, queues queue.Set, r hold.Request) ([]*hold.Hold, error) {
	grants, err := queues.Acquire(ctx, r.Request)
	if err != nil {
		return nil, err
	}
	return hold.Begin(grants, r), nil
}

// TryAcquireSet is AcquireSet with Request.Try.
func TryAcquireSet(ctx context.Context, queues queue.Set, r hold.Request) ([]*hold.Hold, error) {
	r.Try = true
	return AcquireSet(ctx, queues, r)
}

// TryAcquire is TryAcquireSet for one queue.
func TryAcquire(ctx context.Context, q *queue.Queue) (*hold.Hold, error) {
	holds, err := TryAcquireSet(ctx, queue.Set{q}, hold.Request{})
	if err != nil {
		return nil, err
	}
	return holds[0], nil
}

// Result is what Acquire returned, and when.
type Result struct {
	H   *hold.Hold
	Err error
	At  time.Time
}

// AcquireLater acquires on a goroutine that ends with ctx.
func AcquireLater(ctx context.Context, q *queue.Queue) <-chan Result {
	done := make(chan Result, 1)
	go func() {
		h, err := hold.Acquire(ctx, q, hold.Request{})
		done <- Result{h, err, time.Now()}
	}()
	return done
}

// Granted receives a hold whose entry must be the first.
func Granted(t *testing.T, srv *etcdfake.Server, done <-chan Result) Result {
	t.Helper()
	r := <-done
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	if !IsFirst(srv, r.H) {
		t.Errorf("%s is held, and in etcd stand %v", r.H.Key(), srv.Keys(r.H.Queue().Layout().Entries))
	}
	return r
}

// IsFirst reports whether the hold's entry is the first of its queue in etcd.
func IsFirst(srv *etcdfake.Server, h *hold.Hold) bool {
	kvs := srv.Keys(h.Queue().Layout().Entries)
	return len(kvs) > 0 && string(kvs[0].Key) == h.Key() && kvs[0].CreateRevision == h.Token().Revision()
}

func MustRelease(t *testing.T, h *hold.Hold) {
	t.Helper()
	if err := h.Release(kit.Within(t, time.Minute)); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// Delayed checks whether the lock delay has passed between the deletion of the entry
// at key and a grant.
func Delayed(t *testing.T, r Result, srv *etcdfake.Server, key string, want bool) {
	t.Helper()
	after := r.At.Sub(kit.DeletedAt(t, srv, key))
	if want && (after < kit.LockDelay || after > kit.LockDelay+kit.Prompt) || !want && after > kit.Prompt {
		t.Errorf("granted %v after the entry ahead had left; lock delay %v", after, want)
	}
}

// NotBefore checks that an entry stood for that long before it was granted.
func NotBefore(t *testing.T, srv *etcdfake.Server, r Result, d time.Duration) {
	t.Helper()
	history := srv.History(r.H.Key())
	i := slices.IndexFunc(history, func(c etcdfake.Change) bool { return c.Revision == r.H.Token().Revision() })
	if stood := r.At.Sub(history[i].At); stood < d || stood > d+kit.Prompt {
		t.Errorf("granted %v after its entry was put, want %v", stood, d)
	}
}

// RefuseMoves has etcd refuse moves with err.
func (p *Process) RefuseMoves(err error) {
	p.KV.Refuse(func(ops []clientv3.Op) error {
		if ops[0].IsPut() && (len(ops) == 1 || ops[1].IsDelete()) { // without a claim, and with one
			return err
		}
		return nil
	})
}

// Notify puts a notice into an entry, as an administrator does.
func Notify(t *testing.T, srv *etcdfake.Server, kv *mvccpb.KeyValue, n layout.Notice) {
	t.Helper()
	if !TryNotify(t, srv, kv, n) {
		t.Fatalf("the entry was changed or removed: %v", kv)
	}
}

// TryNotify returns false if the entry was changed or removed since it was read.
func TryNotify(t *testing.T, srv *etcdfake.Server, kv *mvccpb.KeyValue, n layout.Notice) bool {
	t.Helper()
	v, ok := layout.DecodeValue(kv.Value)
	if !ok {
		t.Fatalf("entry %v", kv)
	}
	n.At = time.Now()
	v.Notice = n
	resp, err := srv.Client(t).Txn(t.Context()).
		If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
		Then(clientv3.OpPut(string(kv.Key), v.Encode(), clientv3.WithIgnoreLease())).Commit()
	if err != nil {
		t.Fatal(err)
	}
	return resp.Succeeded
}

// Permits is the queue of a semaphore for callers that ask for weight of limit.
func (p *Process) Permits(limit, weight int) *queue.Queue {
	return p.Semaphore(limit).Permits(weight)
}

// Semaphore is the semaphore x with that limit.
func (p *Process) Semaphore(limit int) *queue.Semaphore {
	return queue.NewSemaphore(p.Host, "x", limit)
}

// Readers is the queue of a lock as readers use it.
func (p *Process) Readers(lock string) *queue.Queue { return p.Queue(lock).Readers() }

// StaysQueued fails the test if the call returns although time passes.
func StaysQueued(t *testing.T, done <-chan Result, who string) {
	t.Helper()
	time.Sleep(kit.LockDelay)
	select {
	case r := <-done:
		t.Fatalf("%s was granted (error %v) while a conflicting entry stood ahead", who, r.Err)
	default:
	}
}

// GiveUpToNext has a writer wait and then give up, and returns what the next in its line
// gets, whose entry is queued by then. happens is called before the writer gives up.
func (p *Process) GiveUpToNext(t *testing.T, srv *etcdfake.Server, happens func()) <-chan Result {
	t.Helper()
	ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
	writer := AcquireLater(ctx, p.Queue("x"))
	before := len(srv.Keys(EntriesX))
	kit.Queued(t, srv, EntriesX, before+1)
	next := AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
	time.Sleep(kit.OneWay)
	happens()
	time.Sleep(kit.OneWay)
	giveUp()
	<-writer
	time.Sleep(20 * kit.OneWay)
	p.Plan(nil)
	return next
}

// Set is a Set of locks; "!x" reads x.
func (p *Process) Set(members ...string) (s queue.Set) {
	for _, m := range members {
		if name, reads := strings.CutPrefix(m, "!"); reads {
			s = append(s, p.Readers(name))
		} else {
			s = append(s, p.Queue(name))
		}
	}
	return s
}

func MustAcquireSet(t *testing.T, s queue.Set, r hold.Request) []*hold.Hold {
	t.Helper()
	holds, err := AcquireSet(kit.Within(t, time.Minute), s, r)
	if err != nil {
		t.Fatal(err)
	}
	return holds
}

// AcquireAll acquires the locks x0, x1, … at the same moment.
func AcquireAll(ctx context.Context, p *Process, n int) []<-chan Result {
	all := make([]<-chan Result, n)
	for i := range all {
		all[i] = AcquireLater(ctx, p.Queue(fmt.Sprint("x", i)))
	}
	return all
}

// MustHold receives the holds and checks that their entries are the first.
func MustHold(t *testing.T, srv *etcdfake.Server, all []<-chan Result) []*hold.Hold {
	t.Helper()
	var held []*hold.Hold
	for _, done := range all {
		r := <-done
		if r.Err != nil {
			t.Error(r.Err)
			continue
		}
		if !IsFirst(srv, r.H) {
			t.Errorf("%s is held, and in etcd stand %v", r.H.Queue().Name(), kit.Standing(srv, r.H.Queue().Name()))
		}
		held = append(held, r.H)
	}
	return held
}

// ReleaseAll releases holds at the same moment, and checks that no entry is left.
func ReleaseAll(t *testing.T, srv *etcdfake.Server, held []*hold.Hold) {
	t.Helper()
	var all sync.WaitGroup
	for _, h := range held {
		all.Go(func() {
			if err := h.Release(kit.Within(t, time.Minute)); err != nil {
				t.Errorf("%s: Release: %v", h.Queue().Name(), err)
			}
		})
	}
	all.Wait()
	kit.NothingStands(t, srv)
}

func MustClose(t *testing.T, p *Process) {
	t.Helper()
	if err := p.Sess.Close(kit.Within(t, time.Minute)); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// Updates has fate decide what becomes of the n-th update.
func (p *Process) Updates(fate func(n int) etcdfake.Fate) {
	p.Plan(func(kind string, n int) etcdfake.Fate {
		if kind == "mark" { // puts a value, under comparisons, and keeps the lease
			return fate(n)
		}
		return etcdfake.Fate{}
	})
}
