package hold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

func TestRemovalThatWasNotSentIsNotOfUnknownOutcome(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var metrics kit.Metrics
		p := holdtest.Start(t, srv, func(o *session.Options) { metrics = kit.CollectMetrics(o) })
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if kind == "enqueue" {
				f.Request = 100 * time.Millisecond
			}
			return f
		})
		var others []<-chan holdtest.Result
		for i := range holdtest.MaxInFlight {
			others = append(others, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue(fmt.Sprint(i))))
		}
		synctest.Wait()
		if err := h.Release(kit.Within(t, holdtest.MaxWait/2)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Release: %v", err)
		}
		for _, done := range others {
			holdtest.MustRelease(t, holdtest.Granted(t, srv, done).H)
		}
		kit.NothingStands(t, srv)
		for point, n := range metrics.Points(t) {
			if strings.HasPrefix(point, "replies.ambiguous") {
				t.Errorf("%d of %s", n, point)
			}
		}
	})
}

func TestUnansweredReleaseEndsWithTheLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.Link.BlackHole()
		const before = time.Second // less than an attempt may take
		time.Sleep(p.Sess.Remaining() - before)
		began := time.Now()
		err := h.Release(kit.Within(t, time.Minute))
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Release: %v", err) // etcd may have carried it out before the session gave the lease up
		}
		if took := time.Since(began); took > before+time.Millisecond {
			t.Errorf("Release took %v, and the lease was lost after %v", took, before)
		}
	})
}

func TestEntryDeletedOnALeaseOfOneSecondIsNoLossOfTheLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(&etcdfake.Options{MinTTL: time.Second})
		t.Cleanup(srv.Close)
		p := holdtest.Start(t, srv, func(o *session.Options) { o.TTL, o.DriftMargin = time.Second, 0 })
		deleted, other := holdtest.MustAcquire(t, p.Queue("deleted")), holdtest.MustAcquire(t, p.Queue("other"))
		time.Sleep(3 * time.Second)
		srv.Delete(deleted.Key())
		<-deleted.Done()
		var lost *holdfast.LostError
		if err := deleted.Check(); !errors.As(err, &lost) || lost.Cause != holdfast.CauseEntryDeleted {
			t.Errorf("the hold whose entry was deleted: %v", err)
		}
		if err := other.Check(); err != nil {
			t.Errorf("the other hold: %v", err)
		}
	})
}

func TestUnansweredReleaseIsFinishedAsSoonAsEtcdIsBack(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, a.Queue("x"))
		waiter := holdtest.AcquireLater(t.Context(), b.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		a.Link.Cut()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := h.Release(ctx); !errors.Is(err, holdfast.ErrOutcomeUnknown) || time.Since(begin) != 2*time.Second {
			t.Errorf("Release after %v: %v", time.Since(begin), err)
		}
		time.Sleep(8 * time.Second)
		if kvs := kit.Standing(srv, "x"); len(kvs) != 2 {
			t.Fatalf("entries %v: the connection is not cut", kvs)
		}
		lease := a.Sess.Lease()
		a.Heal()
		back := time.Now()
		if r := <-waiter; r.Err != nil || time.Since(back) > time.Second+10*kit.OneWay {
			t.Errorf("the waiter after %v: %v", time.Since(back), r.Err)
		}
		time.Sleep(time.Second)
		if a.Sess.Check() != nil || a.Sess.Lease() != lease {
			t.Errorf("the session: %v, lease %x (was %x)", a.Sess.Check(), a.Sess.Lease(), lease)
		}
	})
}
