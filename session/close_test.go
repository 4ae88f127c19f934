package session_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// Before, neither this Close nor any other ever returned.
func TestCloseFromACallbackReturnsAndNamesIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		closed := make(chan error, 1)
		var start time.Time
		var sess *session.Session
		ready := make(chan struct{})
		sess = f.open(t, session.Options{OnStateChange: func(ev session.Event) {
			<-ready
			if ev.State == holdfast.Lost {
				start = time.Now()
				closed <- sess.Close(context.Background())
			}
		}})
		close(ready)
		synctest.Wait()
		f.set(func(f *fakeEtcd) { delete(f.expiry, int64(sess.Lease())) })
		var stuck *session.CallbackError
		err := <-closed // after a renewal has told of the loss
		if !errors.As(err, &stuck) || time.Since(start) != 5*time.Second || errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		if len(stuck.Callbacks) != 1 || !strings.Contains(stuck.Callbacks[0], "TestCloseFromACallback") {
			t.Errorf("%v", err)
		}
		if err := sess.Close(t.Context()); err != nil {
			t.Errorf("Close after the callback has returned: %v", err)
		}
	})
}

// Invariant 12: whose callback it is that keeps Close waiting.
func TestCloseNamesTheCallbackThatIsStuck(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		release := make(chan struct{})
		sess := f.open(t, session.Options{CloseTimeout: 3 * time.Second})
		sess.Subscribe(func(session.Event) { <-release })
		for _, want := range []time.Duration{3 * time.Second, 0} {
			start := time.Now()
			var stuck *session.CallbackError
			err := sess.Close(context.Background())
			if !errors.As(err, &stuck) || !strings.Contains(err.Error(), "TestCloseNamesTheCallbackThatIsStuck") || time.Since(start) != want {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
		}
		if f.count("LeaseRevoke") != 1 {
			t.Errorf("revoked %d times", f.count("LeaseRevoke"))
		}
		close(release)
		synctest.Wait()
		if err := sess.Close(t.Context()); err != nil {
			t.Errorf("Close after the callback returned: %v", err)
		}
	})
}

// Auditors and Retry.Notify run on goroutines of the session.
func TestCloseStopsWaitingForAGoroutineThatIsStuckInACallback(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		release := make(chan struct{})
		sess := f.open(t, session.Options{})
		lease.Open(sess.Ref()).Go(func(context.Context) { <-release })
		start := time.Now()
		var stuck *session.CallbackError
		err := sess.Close(context.Background())
		if !errors.As(err, &stuck) || !strings.Contains(err.Error(), "Auditor") || time.Since(start) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		close(release)
		synctest.Wait()
		if err := sess.Close(t.Context()); err != nil {
			t.Errorf("Close after it has returned: %v", err)
		}
	})
}

// What is built on a session removes its entries when all are told and while the
// lease still stands.
func TestHooksRunBeforeTheLeaseIsRevoked(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, f *fakeEtcd, sess *session.Session){
		"by Close": func(t *testing.T, f *fakeEtcd, sess *session.Session) {
			if err := sess.Close(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"after it was given up": func(t *testing.T, f *fakeEtcd, sess *session.Session) {
			f.set(func(f *fakeEtcd) { f.noRenew = true })
			time.Sleep(15*time.Second + 100*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := newFakeEtcd()
				sess := f.open(t, session.Options{TTL: 15 * time.Second})
				held, _ := lease.Open(sess.Ref()).Await(t.Context())
				// A clock that runs ahead of etcd's: the lease still stands when the margin is over.
				f.set(func(f *fakeEtcd) { f.expiry[int64(held.ID())] = time.Now().Add(20 * time.Second) })
				var order []string
				for _, hook := range []string{"first", "second"} {
					lease.Open(sess.Ref()).BeforeRevoke(func(ctx context.Context, l *lease.Lease) {
						if l != held {
							return // the one that followed; closed with the test
						}
						order = append(order, hook)
						if l.Context().Err() == nil || l.Lost() == nil {
							t.Errorf("lease %x, lost: %v", l.ID(), l.Lost())
						}
						_, err := sess.Client().Put(ctx, "x", "", clientv3.WithLease(l.ID()))
						if err != nil {
							t.Errorf("a request of the hook: %v", err)
						}
					})
				}
				end(t, f, sess)
				synctest.Wait()
				if strings.Join(order, " ") != "first second" || !f.expires(held.ID()).IsZero() || f.count("LeaseRevoke") != 1 {
					t.Errorf("hooks %v, expiry %v, %d revocations", order, f.expires(held.ID()), f.count("LeaseRevoke"))
				}
			})
		})
	}
}

func TestHookThatHangsDoesNotKeepTheLeaseFromBeingRevoked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{})
		lease.Open(sess.Ref()).BeforeRevoke(func(ctx context.Context, _ *lease.Lease) { <-ctx.Done() })
		start := time.Now()
		if err := sess.Close(context.Background()); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if f.count("LeaseRevoke") != 1 {
			t.Error("not revoked")
		}
	})
}

func TestHooksDoNotRunForALeaseThatWasRevoked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		sess := f.open(t, session.Options{OnStateChange: events.tell})
		revoked := sess.Lease()
		lease.Open(sess.Ref()).BeforeRevoke(func(_ context.Context, l *lease.Lease) {
			if l.ID() == revoked {
				t.Error("it ran")
			}
		})
		f.set(func(f *fakeEtcd) { delete(f.expiry, int64(revoked)) })
		events.next(t, holdfast.Lost)
		events.next(t, holdfast.Connected)
		time.Sleep(5 * time.Second)
	})
}

// Close may come while the session puts the key of the lease that follows a loss,
// which Close does not know of yet.
func TestCloseLeavesNoSessionKeyOfALeaseThatIsBeingGranted(t *testing.T) {
	for after := time.Duration(0); after < 100*time.Millisecond; after += 5 * time.Millisecond {
		bubble.Test(t, func(t *testing.T) {
			srv := newServer(t)
			link := srv.Link()
			sess := openOn(t, link, session.Options{})
			link.Delay(10 * time.Millisecond)
			srv.Revoke(sess.Lease())
			time.Sleep(after)
			if err := sess.Close(t.Context()); err != nil {
				t.Errorf("closed after %v: %v", after, err)
			}
			time.Sleep(time.Second) // what was sent before has arrived
			if kvs := srv.Keys("holdfast/session/"); len(kvs) > 0 {
				t.Errorf("closed after %v: left %v", after, kvs)
			}
		})
	}
}

// Before, the session asked for a lease for ever and its waiters waited on.
func TestClosedClientIsTheEndOfTheSessionAndSaysSo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv, events := newServer(t), newRecorder()
		link := srv.Link()
		sess := openOn(t, link, session.Options{OnStateChange: events.tell})
		held, _ := lease.Open(sess.Ref()).Await(t.Context())
		if err := link.Client().Close(); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		lost := lossOf(t, events.next(t, holdfast.Lost))
		if lost.Cause != holdfast.CauseClientClosed || !errors.Is(lost, holdfast.ErrClientClosed) || held.Check() == nil {
			t.Errorf("%v", lost)
		}
		start, before := time.Now(), link.Count()
		if _, err := lease.Open(sess.Ref()).Await(t.Context()); !errors.Is(err, holdfast.ErrClientClosed) || !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Await: %v", err)
		}
		if time.Since(start) != 0 {
			t.Errorf("Await took %v", time.Since(start))
		}
		time.Sleep(time.Hour)
		if n := link.Count()["LeaseGrant"] - before["LeaseGrant"]; n != 0 || len(events) != 0 {
			t.Errorf("%d grants, %d events", n, len(events))
		}
		start = time.Now()
		err := sess.Close(t.Context())
		if !errors.Is(err, holdfast.ErrClientClosed) || errors.Is(err, holdfast.ErrOutcomeUnknown) || time.Since(start) != 0 {
			t.Errorf("Close after %v: %v", time.Since(start), err)
		}
		if _, err := session.New(t.Context(), link.Client(), nil); !errors.Is(err, holdfast.ErrClientClosed) {
			t.Errorf("New: %v", err)
		}
	})
}

// The client is closed while no lease is there, and one is waited for.
func TestWaiterForANewLeaseIsToldThatTheClientIsClosed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv, events := newServer(t), newRecorder()
		link := srv.Link()
		sess := openOn(t, link, session.Options{OnStateChange: events.tell})
		link.BlackHole()
		events.next(t, holdfast.Suspended)
		events.next(t, holdfast.Lost)
		waiter := make(chan error, 1)
		go func() { // joined below
			_, err := lease.Open(sess.Ref()).Await(t.Context())
			waiter <- err
		}()
		time.Sleep(time.Minute)
		link.Close()
		synctest.Wait()
		select {
		case err := <-waiter:
			var lost *holdfast.LostError
			if !errors.Is(err, holdfast.ErrClientClosed) || !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired {
				t.Errorf("%v", err)
			}
		default:
			t.Fatal("it still waits")
		}
	})
}
