package hold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// stayTaken is in the log if the name may stay taken until the ticket's lease is over.
const stayTaken = "level=WARN msg=\"holdfast: a lock whose Detach"

// isFree checks that nothing keeps a name taken, and that the log does not say so.
func isFree(t *testing.T, srv *etcdfake.Server, logged *bytes.Buffer) {
	t.Helper()
	kit.NothingStands(t, srv)
	synctest.Wait() // nothing is being logged
	if strings.Contains(logged.String(), stayTaken) {
		t.Errorf("the name is free, and logged is %s", logged)
	}
}

// Without a ticket the name is free again: neither the entry nor the lease of the ticket keeps it.
func TestDetachThatIsGivenUpRemovesTheEntry(t *testing.T) {
	const late = 10 * kit.OneWay // after a revocation that is sent at the same time, before a copy
	for name, happens := range map[string]func(p *holdtest.Process){
		"etcd is away": func(p *holdtest.Process) { p.Link.BlackHole() },
		"the reply is lost again and again": func(p *holdtest.Process) {
			p.PlanAll("detach", etcdfake.Fate{LoseReply: true, Silent: true})
		},
		"and the removal is slow": func(p *holdtest.Process) {
			p.Plan(func(kind string, _ int) etcdfake.Fate {
				return map[string]etcdfake.Fate{"detach": {LoseReply: true, Silent: true}, "remove": {Request: late}}[kind]
			})
		},
		"the Txn arrives after the removal": func(p *holdtest.Process) {
			p.PlanAll("detach", etcdfake.Fate{Request: 20 * time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var logged bytes.Buffer
				p := holdtest.Start(t, srv, holdtest.LogTo(&logged))
				h := holdtest.MustAcquire(t, p.Queue("x"))
				happens(p)
				began := time.Now()
				_, err := h.Detach(kit.Within(t, time.Second), time.Hour)
				if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) ||
					!strings.Contains(err.Error(), `detach lock "x" (token `) ||
					strings.Contains(err.Error(), "on the ticket's lease") != (name != "etcd is away") {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				synctest.Wait() // the removal is on its way
				p.Heal()
				if err := h.Release(kit.Within(t, 30*time.Second)); err != nil {
					t.Errorf("Release: %v", err)
				}
				p.Plan(nil)
				time.Sleep(time.Minute)
				isFree(t, srv, &logged)
			})
		})
	}
}

// What a retry cannot help is told alone: the entry is removed by then, so no lease keeps the name taken, even if that
// of the ticket stays.
func TestDetachThatEtcdRefusesSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		refused []string
		revoked int
	}{
		"the Grant":              {[]string{"LeaseGrant"}, 0},
		"the Txn":                {[]string{"detach"}, 1},
		"and the lease is stuck": {[]string{"detach", "LeaseRevoke"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var logged bytes.Buffer
				p := holdtest.Start(t, srv, holdtest.LogTo(&logged))
				h := holdtest.MustAcquire(t, p.Queue("x"))
				p.Plan(func(kind string, _ int) (f etcdfake.Fate) {
					if slices.Contains(c.refused, kind) {
						f = denied
					}
					return f
				})
				_, err := h.Detach(kit.Within(t, time.Minute), time.Hour)
				if err == nil || !strings.HasPrefix(err.Error(), "detach lock") ||
					!strings.Contains(err.Error(), "PermissionDenied") ||
					!strings.HasSuffix(err.Error(), "; there is no ticket, and the hold has ended") {
					t.Errorf("Detach: %v", err)
				}
				time.Sleep(time.Second)
				isFree(t, srv, &logged)
				if n := p.Counts()["LeaseRevoke"]; n != c.revoked {
					t.Errorf("%d revocations, want %d", n, c.revoked)
				}
				p.Plan(nil)
			})
		})
	}
}

// denied is how etcd refuses what a role may not do.
var denied = etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}

// Both keys are on the ticket's lease, the session's lease is lost, and etcd answers again long before the first is
// over: the name is freed then, not at the end of the ticket's time, or when an auditor returns.
func TestDetachThatIsGivenUpCutOffFreesTheNameOnceEtcdAnswers(t *testing.T) {
	unblock := make(chan struct{})
	for name, auditor := range map[string]audit.Auditor{
		"no auditor": nil,
		"an auditor blocks": audit.Func(func(_ context.Context, r audit.Record) {
			if r.Event != audit.Granted {
				<-unblock
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				unblock = make(chan struct{}) // of this bubble
				var logged bytes.Buffer
				p := holdtest.Start(t, srv, holdtest.LogTo(&logged))
				h := holdtest.MustAcquireAs(t, p.Queue("x"), hold.Request{Auditor: auditor})
				err, own := giveUpCutOff(t, srv, p, h)
				if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !strings.Contains(err.Error(), fmt.Sprintf("%x", own)) ||
					!strings.Contains(err.Error(), "which ends at 2000-01-01T01:00:") {
					t.Errorf("the error does not say that lease %x keeps the entry for an hour: %v", own, err)
				}
				time.Sleep(2 * kit.TTL)
				if kv := srv.Keys(h.Key()); len(kv) != 1 || kv[0].Lease != int64(own) {
					t.Fatalf("in etcd %v: this tests nothing", kv)
				}
				p.Heal()
				planRevocations(p, own, holdtest.LostReply, etcdfake.Fate{}) // the second one finds no lease
				time.Sleep(kit.TTL)
				isFree(t, srv, &logged)
				p.Plan(nil)
				close(unblock)
			})
		})
	}
}

// Close tries once more.
func TestCloseRevokesTheLeaseOfADetachThatWasGivenUp(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		_, _ = giveUpCutOff(t, srv, p, h)
		time.Sleep(2 * kit.TTL)
		time.AfterFunc(kit.CloseTimeout/4, p.Heal)
		holdtest.MustClose(t, p)
		kit.NothingStands(t, srv)
	})
}

// Who reads the log knows what keeps the name taken, and until when.
func TestLeaseOfADetachThatCannotBeRevokedIsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		fate   etcdfake.Fate
		why    string
		closes time.Duration // Close goes on with it for so long
	}{
		"no answer until Close": {holdtest.Silence, "context deadline exceeded", kit.CloseTimeout / 2},
		"no permission":         {denied, "PermissionDenied", 0},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var logged bytes.Buffer
				p := holdtest.Start(t, srv, holdtest.LogTo(&logged))
				h := holdtest.MustAcquire(t, p.Queue("x"))
				_, own := giveUpCutOff(t, srv, p, h)
				time.Sleep(2 * kit.TTL)
				p.Heal()
				planRevocations(p, own, c.fate, c.fate)
				time.Sleep(kit.TTL)
				began := time.Now()
				holdtest.MustClose(t, p)
				if took := time.Since(began); took < c.closes || took > c.closes+kit.Prompt {
					t.Errorf("Close took %v, want %v", took, c.closes)
				}
				_, line, found := strings.Cut(logged.String(), stayTaken)
				if !found || strings.Contains(line, stayTaken) || !strings.Contains(line, c.why) ||
					!strings.Contains(line, fmt.Sprintf("lease=%x until=2000-01-01T01:00:", own)) {
					t.Errorf("the log does not name lease %x, once, and %q: %s", own, c.why, logged.String())
				}
			})
		})
	}
}

// giveUpCutOff gives up a Detach for an hour that was carried out as its process was cut off, and returns its error and
// the lease of the ticket.
func giveUpCutOff(t *testing.T, srv *etcdfake.Server, p *holdtest.Process, h *hold.Hold) (error, clientv3.LeaseID) {
	t.Helper()
	before := on(srv, h.Key())[0]
	p.PlanAll("detach", etcdfake.Fate{LoseReply: true, Silent: true})
	failed := make(chan error, 1)
	go func() { // ends with its context
		_, err := h.Detach(kit.Within(t, 5*time.Second), time.Hour)
		failed <- err
	}()
	for on(srv, h.Key())[0] == before {
		time.Sleep(kit.OneWay)
	}
	p.Link.Cut()
	p.Plan(nil)
	return <-failed, on(srv, h.Key())[0]
}

// planRevocations decides what becomes of the first revocation of a lease, and of the others.
func planRevocations(p *holdtest.Process, lease clientv3.LeaseID, first, others etcdfake.Fate) {
	n := 0
	p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
		if r, ok := c.Request.(*pb.LeaseRevokeRequest); ok && r.ID == int64(lease) {
			if n++; n == 1 {
				return first
			}
			f = others
		}
		return f
	})
}

// The session ends while a Detach may have been carried out. It removes nothing then, and the ticket's lease would keep
// the name for an hour; MinHold would, too, where it was not.
func TestCloseDuringADetachLeavesNothing(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"carried out": {LoseReply: true, Silent: true}, "not carried out": holdtest.Silence,
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := mustTake(t, p, "x")
				p.PlanAll("detach", fate)
				failed := make(chan error, 1)
				go func() { // ends with Close
					_, err := h.Detach(t.Context(), time.Hour)
					failed <- err
				}()
				time.Sleep(time.Second / 2)
				if kvs := srv.Keys(h.Key()); len(kvs) != 1 || (kvs[0].Version == 2) != fate.LoseReply {
					t.Fatalf("in etcd %v", kvs)
				}
				holdtest.MustClose(t, p)
				if err := <-failed; !errors.Is(err, holdfast.ErrClosed) {
					t.Errorf("Detach: %v", err)
				}
				time.Sleep(10 * kit.OneWay)
				kit.NothingStands(t, srv)
			})
		})
	}
}

// A session that was closed meanwhile holds up no caller.
func TestDetachEndsWithItsContextThoughTheSessionIsClosed(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		p.PlanAll("detach", holdtest.Silence)
		ctx := kit.Within(t, time.Second)
		failed := make(chan error, 1)
		go func() { // ends with ctx
			_, err := h.Detach(ctx, time.Hour)
			failed <- err
		}()
		time.Sleep(time.Second / 2)
		p.Link.BlackHole()
		go func() { _ = p.Sess.Close(t.Context()) }() // ends with CloseTimeout
		began := time.Now()
		if err := <-failed; err == nil || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		p.Heal()
	})
}

// The session loses its lease before it has a reply. The loss names the ticket's lease, too: the name may stay taken.
func TestDetachThatEndsWithItsLeaseNamesTheTicketsLease(t *testing.T) {
	for name, c := range map[string]struct {
		plan  etcdfake.Fate
		names bool
	}{
		"without a reply": {etcdfake.Fate{LoseReply: true, Silent: true}, true}, "before the Txn": {holdtest.Silence, false},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := holdtest.MustAcquire(t, p.Queue("x"))
				kind := "detach"
				if !c.names {
					kind = "LeaseGrant"
				}
				p.PlanAll(kind, c.plan)
				time.AfterFunc(time.Second, p.Link.BlackHole)
				_, err := h.Detach(kit.Within(t, time.Hour), time.Hour)
				if !errors.Is(err, holdfast.ErrLost) || strings.Contains(err.Error(), "on the ticket's lease") != c.names {
					t.Error(err)
				}
				p.Heal()
			})
		})
	}
}
