package robustness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// pollEvery is how often package hold reads the entries of holds at most, with the default lock delay.
const pollEvery = time.Second

// alarm raises the NOSPACE alarm, as a member does when its store is full.
func alarm(t *testing.T, cli *clientv3.Client) {
	t.Helper()
	must(t)(pb.NewMaintenanceClient(cli.ActiveConnection()).Alarm(deadline(t), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE,
	}))
}

// Scenario 38: while the store is full, acquisitions fail at once with ErrNoSpace.
// Held locks are kept, can be released, and pass to the next waiter.
func TestFullStoreRefusesNewHoldsAndKeepsExistingOnes(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	const ttl = 6 * time.Second
	var counted requests
	sess := open(t, counted.client(t, link), session.Options{TTL: ttl})
	other := open(t, srv.Client(t), session.Options{})
	held, err := locker.NewMutex(sess, "held").Lock(deadline(t))
	must(t)(nil, err)
	waiter := make(chan error, 1)
	go func() { // joined below
		_, err := locker.NewMutex(other, "held").Lock(deadline(t))
		waiter <- err
	}()
	srv.WaitForKeys(t, "holdfast/lock/held/@/", 2)
	first, err := locker.NewMutex(sess, "in-process").Lock(deadline(t))
	must(t)(nil, err)
	second := make(chan error, 1)
	joined := &joinSignal{Context: deadline(t), joined: make(chan struct{})}
	go func() { // joined below
		_, err := locker.NewMutex(sess, "in-process").Lock(joined)
		second <- err
	}()
	<-joined.joined

	alarm(t, srv.Client(t))
	fn := func(context.Context, *locker.Lock) error { t.Error("the function ran"); return nil }
	for what, call := range map[string]func(context.Context) error{
		"New": func(ctx context.Context) error {
			_, err := session.New(ctx, srv.Client(t), session.Options{})
			return err
		},
		"Lock": func(ctx context.Context) error {
			_, err := locker.NewMutex(sess, "new").Lock(ctx)
			if failed := (*view.AcquireError)(nil); !errors.As(err, &failed) {
				t.Errorf("Lock: %v", err)
			}
			return err
		},
		"TryDo": func(ctx context.Context) error { return locker.NewMutex(sess, "new").TryDo(ctx, fn) },
		"Campaign": func(ctx context.Context) error {
			_, err := election.New(sess, "new").With(election.Options{Value: "v"}).Campaign(ctx)
			return err
		},
		"fenced Put": func(ctx context.Context) error {
			_, err := etcdfence.NewWriter(held).Put(ctx, "k", "v")
			return err
		},
	} {
		if err := call(deadline(t)); !errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The waiting goroutine of the same session has no entry yet, and cannot put one.
	must(t)(nil, first.Unlock(deadline(t)))
	if err := <-second; !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("Lock behind another goroutine: %v", err)
	}
	// For longer than the TTL the session sends only renewals and polls of its
	// entry. It does not retry the acquisitions that failed. On a busy machine it puts its
	// key again, as long as that is refused, because a request was repeated.
	before, slow := link.Count(), counted.slow.Load()
	must(t)(nil, link.Wait(deadline(t), "LeaseKeepAlive", before["LeaseKeepAlive"]+4))
	sent := link.Count().Since(before)
	slow = counted.slow.Load() - slow
	polls, puts := (sent["LeaseKeepAlive"]+1)*int(ttl/3/pollEvery), sent["Put"]
	if sent["Txn"] > polls+puts+int(slow) || puts > 2*polls+4 { // a slow poll is sent again; a sweep follows each put
		t.Errorf("sent %v; %d were slow", sent, slow)
	}
	if err := held.Check(); err != nil {
		t.Errorf("Check: %v", err)
	}
	must(t)(etcdfence.NewWriter(held).Delete(deadline(t), "k"))
	must(t)(nil, held.Unlock(deadline(t)))
	must(t)(nil, <-waiter)

	kvs := slices.Concat(srv.Keys(t, "holdfast/lock/new/"), srv.Keys(t, "holdfast/lock/in-process/"),
		srv.Keys(t, "holdfast/election/"))
	if len(kvs) != 0 {
		t.Errorf("failed acquisitions left %v", kvs)
	}
	must(t)(srv.Client(t).AlarmDisarm(deadline(t), &clientv3.AlarmMember{}))
	must(t)(nil, locker.NewMutex(sess, "new").Do(deadline(t), func(context.Context, *locker.Lock) error { return nil }))
}

// A program fills etcd's store up to its quota. An operator frees it, as etcd's documentation says: delete, compact,
// defragment, and end the alarm.
func TestLockIsKeptWhileTheStoreIsAboveItsQuota(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t, etcdtest.Options{Configure: func(c *embed.Config) { c.QuotaBackendBytes = 8 << 20 }})
	cli, link := srv.Client(t), srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 2 * time.Second})
	held := lock(t, sess, "held")

	var full error
	for i := 0; full == nil; i++ {
		_, full = cli.Put(deadline(t), fmt.Sprint("filler/", i), strings.Repeat("x", 1<<20))
	}
	if !errors.Is(full, rpctypes.ErrNoSpace) {
		t.Fatal(full)
	}
	if _, err := locker.NewMutex(sess, "new").Lock(deadline(t)); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("Lock: %v", err)
	}
	before := link.Count()["LeaseKeepAlive"]
	must(t)(nil, link.Wait(deadline(t), "LeaseKeepAlive", before+6)) // for longer than the TTL
	if err := held.Check(); err != nil {
		t.Errorf("Check: %v", err)
	}

	deleted, err := cli.Delete(deadline(t), "filler/", clientv3.WithPrefix())
	must(t)(nil, err)
	must(t)(cli.Compact(deadline(t), deleted.Header.Revision, clientv3.WithCompactPhysical()))
	must(t)(cli.Defragment(deadline(t), srv.Endpoints()[0]))
	must(t)(cli.AlarmDisarm(deadline(t), &clientv3.AlarmMember{}))
	must(t)(nil, locker.NewMutex(sess, "new").Do(deadline(t), func(context.Context, *locker.Lock) error { return nil }))
	must(t)(nil, held.Unlock(deadline(t)))
}

// A Txn of a canceled acquisition may be delayed until the store has space again. A put
// of the session key would make it fail, but a full store refuses that, too. The
// session therefore sweeps its queue until it can put the key.
func TestSweepEndsWhenTheStoreHasSpaceAgain(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 600 * time.Second})
	gate := lease.Open(sess).Lease().Gate()
	alarm(t, srv.Client(t))
	late := link.Hold("Txn")
	ctx, cancel := context.WithCancel(deadline(t))
	before := link.Count()
	done := make(chan error, 1)
	go func() { // joined below
		_, err := locker.NewMutex(sess, "x").Lock(ctx)
		done <- err
	}()
	<-late.Arrived()
	cancel()
	// On a busy machine the session sends a second copy before the call ends, which
	// etcd refuses.
	if err := <-done; !errors.Is(err, context.Canceled) && !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("Lock: %v", err)
	}
	await(t, "the session sweeps, or an earlier put of its key has arrived late", func() bool {
		return link.Count()["Put"] >= before["Put"]+3 || lease.Open(sess).Lease().Gate() > gate
	})
	must(t)(srv.Client(t).AlarmDisarm(deadline(t), &clientv3.AlarmMember{}))
	await(t, "the session has put its key", func() bool { return lease.Open(sess).Lease().Gate() > gate })
	// It sweeps once more, and then sends nothing while another session renews three times, once a second.
	clock := srv.Link(t)
	open(t, clock.Client(), session.Options{TTL: 3 * time.Second})
	for ctx, sent := deadline(t), -1; sent != 0; {
		atStart := link.Count()
		must(t)(nil, clock.Wait(ctx, "LeaseKeepAlive", clock.Count()["LeaseKeepAlive"]+3))
		last := link.Count().Since(atStart)
		sent = last["Txn"] + last["Put"]
	}
	late.Deliver()
	<-late.Delivered()
	if kvs := srv.Keys(t, "holdfast/lock/x/@/"); len(kvs) != 0 {
		t.Errorf("the late Txn left %v", kvs)
	}
}

// A full store accepts deletions. A release succeeds even if the session has batched it
// with an acquisition that the store refuses.
func TestFullStoreReleasesLocksBatchedWithNewOnes(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	// No renewal and no poll is sent during the test.
	sess := open(t, link.Client(), session.Options{TTL: 600 * time.Second, LockDelay: time.Minute})
	const inFlight, half, tries = 4, 8, 10 // internal/queue sends up to 4 Txns alone; 8 are half of a full batch
	var held [tries][]*locker.Lock
	for try := range held {
		for i := range half {
			lk, err := locker.NewMutex(sess, fmt.Sprint("held", try, "-", i)).Lock(deadline(t))
			must(t)(nil, err)
			held[try] = append(held[try], lk)
		}
	}
	alarm(t, srv.Client(t))
	var locks, unlocks sync.WaitGroup
	lock := func(name string, until <-chan struct{}) {
		locks.Go(func() {
			for done := false; !done; {
				if _, err := locker.NewMutex(sess, name).Lock(deadline(t)); !errors.Is(err, rpctypes.ErrNoSpace) {
					t.Errorf("Lock %s: %v", name, err)
				}
				select {
				case <-until:
					done = true
				default:
				}
			}
		})
	}
	once := make(chan struct{})
	close(once)
	link.LoseRequest("Txn", 0, isCopyOf("/busy")) // a busy machine sends some
	var busy []*etcdtest.Held
	for i := range inFlight {
		h := link.Hold("Txn")
		lock(fmt.Sprint("busy", i), once)
		<-h.Arrived()
		busy = append(busy, h)
	}
	// A batch collects Txns for a millisecond. On a busy machine it may contain only
	// acquisitions or only releases, so there are several tries. A release is tried twice, so
	// it is batched with acquisitions as long as it takes.
	both := false
	for try := range held {
		batch := link.Hold("Txn")
		released := make(chan struct{})
		for i, lk := range held[try] {
			unlocks.Go(func() {
				if err := lk.Unlock(deadline(t)); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			})
			if !both {
				lock(fmt.Sprint("new", try, "-", i), released)
			}
		}
		<-batch.Arrived()
		both = both || putsAndDeletes(batch.Request().(*pb.TxnRequest))
		batch.Deliver()
		unlocks.Wait()
		close(released)
	}
	if !both {
		t.Error("the test proves nothing: no batch contained both a Lock and an Unlock")
	}
	for _, h := range busy {
		h.Deliver()
	}
	locks.Wait()
	if kvs := srv.Keys(t, "holdfast/lock/"); len(kvs) != 0 {
		t.Errorf("entries left: %v", kvs)
	}
}

// isCopyOf returns a condition that is met by each Txn but the first that puts a certain key with infix in it.
func isCopyOf(infix string) func(request any) bool {
	var mu sync.Mutex // protects seen
	seen := make(map[string]bool)
	return func(request any) bool {
		for _, op := range request.(*pb.TxnRequest).Success {
			if key := string(op.GetRequestPut().GetKey()); strings.Contains(key, infix) {
				mu.Lock()
				defer mu.Unlock()
				again := seen[key]
				seen[key] = true
				return again
			}
		}
		return false
	}
}

// putsAndDeletes reports whether r is a batch with Txns that put and Txns that delete.
func putsAndDeletes(r *pb.TxnRequest) bool {
	var puts, deletes bool
	for _, op := range r.Success {
		for _, inner := range op.GetRequestTxn().GetSuccess() {
			puts = puts || inner.GetRequestPut() != nil
			deletes = deletes || inner.GetRequestDeleteRange() != nil
		}
	}
	return puts && deletes
}
