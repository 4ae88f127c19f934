package session_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// Who is woken by the confirmed renewal may be faster than the watchdog. What
// it acquires then must not come with contexts that the suspension has ended.
func TestConnectedContextLivesAsSoonAsTheRenewalIsConfirmed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		l, err := lease.Open(f.open(t, session.Options{}).Ref()).Await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 30 { // who is faster is for the scheduler to say
			f.set(func(f *fakeEtcd) { f.noRenew = true })
			for !errors.Is(l.Check(), holdfast.ErrSuspended) {
				time.Sleep(time.Second)
			}
			synctest.Wait()
			ended := l.ConnectedContext()
			f.set(func(f *fakeEtcd) { f.noRenew = false })
			if err := l.AwaitConnected(t.Context()); err != nil {
				t.Fatal(err)
			}
			now := l.ConnectedContext()
			if ended.Err() == nil || now.Err() != nil {
				t.Fatalf("contexts of the suspension: %v, of the connection after it: %v", ended.Err(), now.Err())
			}
			synctest.Wait()
			if now.Err() != nil {
				t.Fatalf("the watchdog has ended it: %v", now.Err())
			}
		}
	})
}

// Pauses that suit a program's locks may be longer than a lease lasts. One
// renewal that is not answered must not cost the lease all the same.
func TestPausesBetweenRenewalsFitIntoTheTTL(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{Retry: backoff.Policy{Initial: time.Minute, Max: time.Minute, Rand: func() float64 { return 1 }}})
		lease := sess.Lease()
		f.set(func(f *fakeEtcd) { f.noRenew = true })
		time.Sleep(6 * time.Second) // it was sent at 5 s, and is given up at 9 s
		f.set(func(f *fakeEtcd) { f.noRenew = false })
		time.Sleep(time.Minute)
		if err := sess.Check(); err != nil || sess.Lease() != lease {
			t.Errorf("Check %v, lease %x, was %x", err, sess.Lease(), lease)
		}
	})
}
