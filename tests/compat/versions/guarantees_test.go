package versions_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Many goroutines of two sessions, so that requests are batched and locks are handed over within a session.
func TestOneHoldsAtATimeAndTokensGrow(t *testing.T) {
	t.Parallel()
	cli := connect(t, start(t))
	sessions := []*session.Session{open(t, cli, session.Options{}), open(t, cli, session.Options{})}
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	holders := make([]atomic.Int32, len(names))
	latest := make([]int64, len(names)) // tokens; each protected by the lock under test
	var all sync.WaitGroup
	for range 10 {
		for _, sess := range sessions {
			for i, name := range names {
				all.Go(func() {
					err := locker.NewMutex(sess, name).Do(timeout(t), func(_ context.Context, lk *locker.Lock) error {
						if n := holders[i].Add(1); n != 1 {
							t.Errorf("%d hold %s", n, name)
						}
						if token := int64(lk.Token()); token <= latest[i] {
							t.Errorf("%s: token %d after %d", name, token, latest[i])
						} else {
							latest[i] = token
						}
						holders[i].Add(-1)
						return nil
					})
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
		}
	}
	all.Wait()
}

func TestTryLockOfAHeldLockReturnsErrLocked(t *testing.T) {
	t.Parallel()
	cli := connect(t, start(t))
	a, b := open(t, cli, session.Options{}), open(t, cli, session.Options{})
	lk, err := locker.NewMutex(a, "x").TryLock(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker.NewMutex(b, "x").TryLock(timeout(t)); !errors.Is(err, locker.ErrLocked) {
		t.Errorf("TryLock: %v", err)
	}
	if err := lk.Unlock(timeout(t)); err != nil {
		t.Error(err)
	}
}

func TestResignationMovesLeadership(t *testing.T) {
	t.Parallel()
	cli := connect(t, start(t))
	ctx := timeout(t)
	first, err := election.New(open(t, cli, session.Options{}), "x").With(election.Options{Value: "first"}).Campaign(ctx)
	if err != nil {
		t.Fatal(err)
	}
	follower := election.New(open(t, cli, session.Options{}), "x").With(election.Options{Value: "second"})
	won := make(chan *election.Term, 1)
	go func() { // received from below
		term, err := follower.Campaign(ctx)
		if err != nil {
			t.Error(err)
		}
		won <- term
	}()
	if err := first.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	second := <-won
	if second == nil {
		return
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	if leader, err := follower.Leader(ctx); err != nil || leader.Value != "second" {
		t.Errorf("leader %+v, %v", leader, err)
	}
	if err := second.Resign(ctx); err != nil {
		t.Error(err)
	}
}

// The lease is revoked. The session reports the loss and gets a new lease; later writes of the former holder are
// rejected by the guarded transaction and by the mark.
func TestWriteAfterALossIsRejected(t *testing.T) {
	t.Parallel()
	cli := connect(t, start(t))
	ctx := timeout(t)
	events := make(chan session.Event, 100)
	sess := open(t, cli, session.Options{OnStateChange: func(ev session.Event) { events <- ev }})
	lk, err := locker.NewMutex(sess, "x").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := etcdfence.NewWriter(lk)
	if _, err := w.Put(ctx, "data", "by the holder"); err != nil {
		t.Fatal(err)
	}
	marks, err := etcdfence.NewMarks(cli, etcdfence.MarksOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim := fencing.Claim{Name: "x", Token: lk.Token()}
	if _, err := marks.Commit(ctx, "r", claim, clientv3.OpPut("marked", "by the holder")); err != nil {
		t.Fatal(err)
	}

	if _, err := cli.Revoke(ctx, sess.Lease()); err != nil {
		t.Fatal(err)
	}
	<-lk.Done()
	if !errors.Is(lk.Check(), holdfast.ErrLost) {
		t.Errorf("Check: %v", lk.Check())
	}
	for _, want := range []holdfast.State{holdfast.Lost, holdfast.Connected} {
		if ev := <-events; ev.State != want {
			t.Errorf("%v, want %v", ev.State, want)
		}
	}
	next, err := locker.NewMutex(sess, "x").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	newer := fencing.Claim{Name: "x", Token: next.Token()}
	if _, err := marks.Commit(ctx, "r", newer, clientv3.OpPut("marked", "by the next")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Put(ctx, "data", "too late"); err == nil {
		t.Error("a write after the loss was not rejected")
	}
	// Without the holder's own check, like the late write of a paused process.
	late, err := cli.Txn(ctx).If(lk.Holding()...).Then(clientv3.OpPut("data", "too late")).Commit()
	if err != nil || late.Succeeded {
		t.Errorf("a late transaction: %v, %v", late, err)
	}
	if _, err := marks.Commit(ctx, "r", claim, clientv3.OpPut("marked", "too late")); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a late commit: %v", err)
	}
	for key, want := range map[string]string{"data": "by the holder", "marked": "by the next"} {
		if resp, err := cli.Get(ctx, key); err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != want {
			t.Errorf("%s: %v, %v", key, resp, err)
		}
	}
	if err := next.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// The lease is renewed past its TTL. When the connection is closed, the holder notices the expiry before another client
// acquires the lock.
func TestHolderLearnsOfExpiryBeforeTheNextHolderAcquires(t *testing.T) {
	t.Parallel()
	endpoints := start(t)
	cli, other := connect(t, endpoints), connect(t, endpoints)
	ctx := timeout(t)
	const ttl = 4 * time.Second // short, since it must expire; long enough to be renewed on a busy machine
	sess := open(t, cli, session.Options{TTL: ttl, StayLost: true})
	lk, err := locker.NewMutex(sess, "x").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	waiting := locker.NewMutex(open(t, other, session.Options{}), "x")
	acquired := make(chan error, 1)
	go func() { // received from below
		next, err := waiting.Lock(ctx)
		if err == nil && lk.Check() == nil {
			err = fmt.Errorf("acquired before the former holder noticed the loss")
		}
		if err == nil {
			err = next.Unlock(ctx)
		}
		acquired <- err
	}()
	renewed := time.Now().Add(2 * ttl) // which takes at least two renewals
	for tick := time.NewTicker(10 * time.Millisecond); time.Now().Add(sess.Remaining()).Before(renewed); <-tick.C {
		if err := lk.Check(); errors.Is(err, holdfast.ErrLost) || ctx.Err() != nil {
			t.Fatalf("not renewed: %v", err)
		}
	}
	if err := cli.Close(); err != nil { // no renewal reaches etcd after this
		t.Error(err)
	}
	<-lk.Done()
	if err := <-acquired; err != nil {
		t.Error(err)
	}
}
