package robustness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// alarm raises etcd's NOSPACE alarm as a member does whose store is full.
func alarm(t *testing.T, cli *clientv3.Client) {
	t.Helper()
	must(t)(pb.NewMaintenanceClient(cli.ActiveConnection()).Alarm(deadline(t), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE,
	}))
}

// Scenario 38: with a full store what writes is refused at once, and what is
// held is kept, released and passed on.
func TestFullStoreRefusesNewHoldsAndKeepsExistingOnes(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 6 * time.Second})
	other := open(t, srv.Client(t), session.Options{})
	held, err := locker.NewMutex(sess, "held").Lock(deadline(t))
	must(t)(nil, err)
	waiter := make(chan error, 1)
	go func() { // joined below
		_, err := locker.NewMutex(other, "held").Lock(deadline(t))
		waiter <- err
	}()
	srv.WaitForKeys(t, "holdfast/lock/held/@/", 2)
	first, err := locker.NewMutex(sess, "within").Lock(deadline(t))
	must(t)(nil, err)
	second := make(chan error, 1)
	joined := &joinSignal{Context: deadline(t), joined: make(chan struct{})}
	go func() { // joined below
		_, err := locker.NewMutex(sess, "within").Lock(joined)
		second <- err
	}()
	<-joined.joined

	alarm(t, srv.Client(t))
	fn := func(context.Context, *locker.Lock) error { t.Error("the work ran"); return nil }
	for what, call := range map[string]func(context.Context) error{
		"New": func(ctx context.Context) error { _, err := session.New(ctx, srv.Client(t), nil); return err },
		"Lock": func(ctx context.Context) error {
			_, err := locker.NewMutex(sess, "new").Lock(ctx)
			if failed := (*locker.AcquireError)(nil); !errors.As(err, &failed) {
				t.Errorf("Lock: %v", err)
			}
			return err
		},
		"TryDo":    func(ctx context.Context) error { return locker.NewMutex(sess, "new").TryDo(ctx, fn) },
		"Campaign": func(ctx context.Context) error { _, err := election.New(sess, "new").Campaign(ctx, "v"); return err },
		"fenced Put": func(ctx context.Context) error {
			_, err := fencing.NewFencedWriter(held).Put(ctx, "k", "v")
			return err
		},
	} {
		if err := call(deadline(t)); !errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Nobody of the same session has an entry yet.
	must(t)(nil, first.Unlock(deadline(t)))
	if err := <-second; !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("Lock behind another goroutine: %v", err)
	}
	// Renewals pass, for longer than the TTL. Nothing else is sent but the audit
	// of what is held: what was refused is over, and not tried again.
	before, began := link.Count(), time.Now()
	must(t)(nil, link.Wait(deadline(t), "LeaseKeepAlive", before["LeaseKeepAlive"]+4))
	sent, took := link.Count().Since(before), time.Since(began)
	if audits := int(took/auditEvery) + 1; sent["Txn"] > 2*audits || sent["Put"] != 0 { // twice: a look that is slow is sent again
		t.Errorf("sent meanwhile: %v in %v", sent, took)
	}
	if err := held.Check(); err != nil {
		t.Errorf("Check: %v", err)
	}
	must(t)(fencing.NewFencedWriter(held).Delete(deadline(t), "k"))
	must(t)(nil, held.Unlock(deadline(t)))
	must(t)(nil, <-waiter)

	if kvs := append(srv.Keys(t, "holdfast/lock/new/"), append(srv.Keys(t, "holdfast/lock/within/"), srv.Keys(t, "holdfast/election/")...)...); len(kvs) != 0 {
		t.Errorf("left by what was refused: %v", kvs)
	}
	must(t)(srv.Client(t).AlarmDisarm(deadline(t), &clientv3.AlarmMember{}))
	must(t)(nil, locker.NewMutex(sess, "new").Do(deadline(t), func(context.Context, *locker.Lock) error { return nil }))
}

// A request that is on its way when the store fills up can arrive when there is
// room again, and the put of the session key that would keep it out is refused until
// then. So the session sweeps, and ends that by putting the key as soon as it may.
func TestSweepEndsWhenTheStoreHasSpaceAgain(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 600 * time.Second})
	gate := lease.Open(sess.Ref()).Lease().Gate()
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
	// On a busy machine a second copy is sent before the call ends, and refused.
	if err := <-done; !errors.Is(err, context.Canceled) && !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("Lock: %v", err)
	}
	must(t)(nil, link.Wait(deadline(t), "Put", before["Put"]+3)) // it is swept
	must(t)(srv.Client(t).AlarmDisarm(deadline(t), &clientv3.AlarmMember{}))
	eventually(t, "the session key is put", func() bool { return lease.Open(sess.Ref()).Lease().Gate() > gate })
	looked := link.Count()["Txn"]
	must(t)(nil, link.Wait(deadline(t), "Txn", before["Txn"]+link.Count().Since(before)["Put"]+1)) // a look after each put
	swept, clock := link.Count(), srv.Link(t)
	if swept["Txn"] > looked+1 {
		t.Errorf("%d looks after the last put", swept["Txn"]-looked)
	}
	open(t, clock.Client(), session.Options{TTL: 3 * time.Second}) // renews every second
	must(t)(nil, clock.Wait(deadline(t), "LeaseKeepAlive", 3))
	if sent := link.Count().Since(swept); sent["Txn"]+sent["Put"] != 0 {
		t.Errorf("sent %v more", sent)
	}
	late.Deliver()
	<-late.Delivered()
	if kvs := srv.Keys(t, "holdfast/lock/x/@/"); len(kvs) != 0 {
		t.Errorf("the late request left %v", kvs)
	}
}

// What gives back is let through by a full store, also where it is asked for in one
// message with what is refused.
func TestFullStoreReleasesLocksBatchedWithNewOnes(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	// No renewal and no audit falls into the test.
	sess := open(t, link.Client(), session.Options{TTL: 600 * time.Second, LockDelay: time.Minute})
	const underWay, half, tries = 4, 8, 10 // 4 and 8 of internal/queue: what goes by itself, and half of a full message
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
	lock := func(name string) {
		locks.Go(func() {
			if _, err := locker.NewMutex(sess, name).Lock(deadline(t)); !errors.Is(err, rpctypes.ErrNoSpace) {
				t.Errorf("Lock %s: %v", name, err)
			}
		})
	}
	var busy []*etcdtest.Held
	for i := range underWay {
		h := link.Hold("Txn")
		lock(fmt.Sprint("busy", i))
		<-h.Arrived()
		busy = append(busy, h)
	}
	// A message takes what is asked for within a millisecond: on a busy machine that
	// may be one kind alone.
	both := false
	for try := range held {
		together := link.Hold("Txn")
		for i, lk := range held[try] {
			unlocks.Go(func() {
				if err := lk.Unlock(deadline(t)); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			})
			if !both {
				lock(fmt.Sprint("new", try, "-", i))
			}
		}
		<-together.Arrived()
		both = both || putsAndDeletes(together.Request().(*pb.TxnRequest))
		together.Deliver()
		unlocks.Wait()
	}
	if !both {
		t.Error("this test has gone blind: no Lock went together with an Unlock")
	}
	for _, h := range busy {
		h.Deliver()
	}
	locks.Wait()
	if kvs := srv.Keys(t, "holdfast/lock/"); len(kvs) != 0 {
		t.Errorf("left: %v", kvs)
	}
}

// putsAndDeletes reports whether r is made of Txns of which some put and others
// delete.
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
