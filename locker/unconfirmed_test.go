package locker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// A job that skips when the lock is taken must hear of it when nobody holds it.
func TestTryLockTellsAnEntryOfItsOwnSessionFromALock(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		mu := locker.NewMutex(p.sess, "x")
		expect := func(when string, want error) {
			t.Helper()
			if _, err := mu.TryLock(deadline(t)); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", when, err, want)
			}
		}
		lk := mustLock(t, mu)
		expect("held by this session", locker.ErrLocked)
		p.link.BlackHole()
		if err := lk.Unlock(soon(t, 50*time.Millisecond)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		expect("after an Unlock that was not answered", locker.ErrUnconfirmed)
		p.heal()
		time.Sleep(5 * time.Second)
		theirs := mustLock(t, locker.NewMutex(other.sess, "x"))
		expect("held by another session", locker.ErrLocked)

		ctx, giveUp := context.WithCancel(t.Context())
		waiter := lockLater(ctx, mu)
		queued(t, srv, "x", 2)
		expect("waited for by this session", locker.ErrLocked)
		p.link.BlackHole()
		giveUp()
		<-waiter
		expect("after a Lock that gave up", locker.ErrUnconfirmed)
		p.heal()
		time.Sleep(5 * time.Second)
		mustUnlock(t, theirs)
		mustUnlock(t, mustLock(t, mu))
	})
}

func TestTryLockTellsAnEntryThatIsLeftOverFromALock(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		lk := mustLock(t, locker.NewMutex(p.sess, "other"))
		mustUnlock(t, lk)
		left := strings.Replace(lk.Key(), "/other/", "/x/", 1)
		srv.Put(left, "")
		if _, err := locker.NewMutex(p.sess, "x").TryLock(deadline(t)); !errors.Is(err, locker.ErrUnconfirmed) {
			t.Errorf("TryLock: %v", err)
		}
		srv.Delete(left)
	})
}

// The lease that ends while Unlock waits for its answer is no loss to be warned of.
func TestLockThatIsBeingReleasedIsNotLoggedAsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		link := srv.Link()
		link.Delay(oneWay)
		sess := open(t, link.Client(), session.Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Clock: session.MonotonicClock(),
		})
		lk := mustLock(t, locker.NewMutex(sess, "x"))
		link.BlackHole()
		_ = lk.Unlock(soon(t, 20*time.Second)) // the lease is lost after 13.5 s
		time.Sleep(time.Second)
		synctest.Wait() // nothing is being logged
		if strings.Contains(log.String(), `msg="holdfast: lost"`) {
			t.Errorf("logged:\n%s", log.String())
		}
		link.Heal()
	})
}

// Whether another client holds or etcd does not answer is what the timeout says.
func TestTimeoutOfLockSaysWhatItWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		expect := func(mu *locker.Mutex, want ...string) {
			t.Helper()
			_, err := mu.Lock(soon(t, 100*time.Millisecond))
			for _, text := range want {
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), text) {
					t.Errorf("%v lacks %q", err, text)
				}
			}
		}
		theirs := mustLock(t, locker.NewMutex(other.sess, "x").With(locker.Options{Owner: "worker 7"}))
		mu := locker.NewMutex(p.sess, "x")
		expect(mu, "queued behind entry", theirs.Key(), "worker 7")
		own := mustLock(t, locker.NewMutex(p.sess, "y"))
		expect(locker.NewMutex(p.sess, "y"), "behind another goroutine of this session")
		p.link.BlackHole()
		expect(mu, "etcd has not answered")
		p.heal()
		mustUnlock(t, own)
		mustUnlock(t, theirs)
	})
}
