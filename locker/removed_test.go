package locker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

const (
	auditEvery = lockDelay / 2 // of internal/queue
	lookBound  = auditEvery / 2
)

// isAudit reports whether a request looks for the entries of held locks: a Txn
// of comparisons and reads.
func isAudit(c etcdfake.Call) bool {
	txn, ok := c.Request.(*pb.TxnRequest)
	return ok && len(txn.Compare) > 0 && len(txn.Success) == 0
}

// All holders are told at once, and only then is the reason asked for, once.
func TestManyEntriesThatGoAtOnceAreToldAtOnce(t *testing.T) {
	const n = 1000
	for name, c := range map[string]struct {
		remove   func(srv *etcdfake.Server, p *process, locks []*locker.Lock)
		cause    holdfast.Cause
		mostAsks int
	}{
		"deleted": {func(srv *etcdfake.Server, _ *process, locks []*locker.Lock) {
			for _, lk := range locks {
				srv.Delete(lk.Key())
			}
		}, holdfast.CauseEntryDeleted, 0},
		"revoked": {func(srv *etcdfake.Server, p *process, _ []*locker.Lock) { srv.Revoke(p.sess.Lease()) }, holdfast.CauseRevoked, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				locks := mustHold(t, srv, lockAll(deadline(t), p, n))
				time.Sleep(3 * auditEvery)
				before := p.link.Count()["LeaseTimeToLive"]
				removed := time.Now()
				c.remove(srv, p, locks)
				for _, lk := range locks {
					<-lk.Done()
				}
				if took := time.Since(removed); took > auditEvery+8*oneWay {
					t.Errorf("the last of %d was told after %v, want one period of %v and a few round trips", n, took, auditEvery)
				}
				for _, lk := range locks {
					var lost *holdfast.LostError
					if !errors.As(lk.Check(), &lost) || lost.Cause != c.cause || lost.Name != lk.Name() {
						t.Fatalf("%s: %v, want cause %v", lk.Name(), lk.Check(), c.cause)
					}
				}
				time.Sleep(time.Second)
				if asked := p.link.Count()["LeaseTimeToLive"] - before; asked > c.mostAsks {
					t.Errorf("asked %d times whether the lease stands", asked)
				}
			})
		})
	}
}

// A member that hangs costs a look half a second, not the whole attempt.
func TestLookForEntriesThatIsNotAnsweredIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		lk := mustLock(t, locker.NewMutex(p.sess, "x"))
		time.Sleep(7 * auditEvery / 2)
		hung := false
		p.link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			if isAudit(c) && !hung {
				hung, f.LoseRequest, f.Silent = true, true, true
			}
			return f
		})
		srv.Delete(lk.Key())
		if _, after := noticed(t, lk); !hung || after > auditEvery+lookBound+2*oneWay {
			t.Errorf("noticed after %v, and a look that hung: %v", after, hung)
		}
	})
}

func TestLooksThatAreNotAnsweredAreCountedAndLoggedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		o := session.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Clock: session.MonotonicClock()}
		seen := observe(t, &o)
		link := srv.Link()
		link.Delay(oneWay)
		sess := open(t, link.Client(), o)
		lk := mustLock(t, locker.NewMutex(sess, "x"))
		link.Plan(func(c etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseRequest: isAudit(c)} })
		time.Sleep(20 * time.Second)
		if err := lk.Check(); err != nil {
			t.Errorf("an unanswered look has changed the lock: %v", err)
		}
		if n := seen.points()["audits.unanswered "]; n < 10 {
			t.Errorf("%d unanswered looks are counted: %v", n, seen.points())
		}
		if n := strings.Count(log.String(), "could not check whether the entries"); n != 1 {
			t.Errorf("%d log lines about it:\n%s", n, log.String())
		}
		link.Heal()
		mustUnlock(t, lk)
	})
}

// etcd's refusal is the proof that the entry is gone: the audit need not find it.
func TestRefusedWriteEndsTheLockAtOnce(t *testing.T) {
	for name, remove := range map[string]func(srv *etcdfake.Server, lk *locker.Lock){
		"deleted": func(srv *etcdfake.Server, lk *locker.Lock) { srv.Delete(lk.Key()) },
		"revoked": func(srv *etcdfake.Server, lk *locker.Lock) { srv.Revoke(lk.Lease()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				lk := mustLock(t, locker.NewMutex(p.sess, "x"))
				ctx, cancel := lk.Context(context.Background())
				defer cancel()
				remove(srv, lk)
				if _, err := fencing.NewFencedWriter(lk).Put(t.Context(), "data", "late"); !errors.Is(err, fencing.ErrStale) {
					t.Errorf("fenced write: %v", err)
				}
				if err := lk.Check(); !errors.Is(err, holdfast.ErrLost) || !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
					t.Errorf("after the refusal: Check %v, context %v", err, context.Cause(ctx))
				}
				if name == "revoked" {
					time.Sleep(20 * oneWay)
					if states := fmt.Sprint(p.events.states()); !strings.Contains(states, "lost") {
						t.Errorf("the session of the revoked lease: %v", states)
					}
				}
			})
		})
	}
}
