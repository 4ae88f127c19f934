package admin_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

const jobEntries = "holdfast/lock/job/@/"

// administrator is an admin.Client of its own, with a delay on its way to etcd, that remembers its records.
type administrator struct {
	*admin.Client
	link    *etcdfake.Link
	records []audit.Record
}

func newAdministrator(srv *etcdfake.Server, owner string) *administrator {
	a := &administrator{link: srv.Link()}
	a.link.Delay(time.Millisecond)
	a.Client = admin.New(a.link.Client(), &admin.Options{
		Owner:   owner,
		Auditor: audit.Func(func(_ context.Context, r audit.Record) { a.records = append(a.records, r) }),
	})
	return a
}

// ends waits until a lock has ended for a reason, and returns how long that took.
func ends(t *testing.T, lk *locker.Lock, cause holdfast.Cause) time.Duration {
	t.Helper()
	begin := time.Now()
	select {
	case <-lk.Done():
	case <-time.After(time.Minute):
		t.Fatalf("the hold does not end: %v", lk.Check())
	}
	var lost *holdfast.LostError
	if !errors.As(lk.Check(), &lost) || lost.Cause != cause {
		t.Fatalf("Check: %v, want cause %v", lk.Check(), cause)
	}
	return time.Since(begin)
}

func mustLock(t *testing.T, sess *session.Session, name string) *locker.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lk, err := locker.NewMutex(sess, name).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// The holder learns of it by the reads it makes anyway. The work of Do is joined, and then the name is free.
func TestKickedHolderEndsItsWorkAndReleases(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		sess, link := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		var told time.Time
		var token fencing.Token
		working, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- locker.NewMutex(sess, "job").Do(t.Context(), func(ctx context.Context, lk *locker.Lock) error {
				token = lk.Token()
				close(working)
				<-ctx.Done()
				told = time.Now()
				var kick *holdfast.KickError
				if err := context.Cause(ctx); !errors.As(err, &kick) || kick.By != "ops" || kick.Reason != "deploy" {
					t.Errorf("the context ends with %v", err)
				}
				again := locker.NewMutex(sess, "job")
				if _, err := again.Lock(context.WithoutCancel(ctx)); !errors.Is(err, holdfast.ErrReentrant) {
					t.Errorf("Lock within the work that was kicked: %v", err)
				}
				time.Sleep(10 * time.Second) // the work takes its time
				if n := len(srv.Keys(jobEntries)); n != 1 {
					t.Errorf("while the work runs there are %d entries", n)
				}
				return nil
			})
		}()
		<-working
		time.Sleep(5 * time.Second)
		asked := time.Now()
		before := link.Count()["Txn"]
		if err := ops.Kick(t.Context(), "job", token, "deploy"); err != nil {
			t.Fatal(err)
		}
		err := <-done
		var lost *holdfast.LostError
		if !errors.As(err, &lost) || lost.Cause != holdfast.CauseKicked || lost.Token != int64(token) {
			t.Errorf("Do: %v", err)
		}
		if after := told.Sub(asked); after > 2*time.Second {
			t.Errorf("told after %v", after)
		}
		if n := len(srv.Keys(jobEntries)); n != 0 {
			t.Errorf("after Do there are %d entries", n)
		}
		// Polls twice a second for at most 12 s, one read of the request, one removal.
		if n := link.Count()["Txn"] - before; n > 26 {
			t.Errorf("%d Txns", n)
		}
		if len(ops.records) != 1 {
			t.Fatalf("records: %+v", ops.records)
		}
		r := ops.records[0]
		if r.Event != audit.Kicked || r.Name != "job" || r.Token != int64(token) || r.By != "ops" || r.Detail != "deploy" ||
			!strings.Contains(r.Holder, `owner "a"`) || r.Err != nil || r.Lease != holdfast.LeaseID(sess.Lease()) {
			t.Errorf("record %+v", r)
		}
	})
}

// A caller of Lock is told by Done. The name is taken until Unlock, which returns the loss.
func TestKickedLockIsTakenUntilUnlock(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		lk, _ := queueUp(t, "job", a, b)
		// A goroutine of the holder's session waits in line, too.
		local, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = locker.NewMutex(a, "job").Lock(local) }()
		time.Sleep(100 * time.Millisecond)
		if err := ops.Kick(t.Context(), "job", lk.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		if took := ends(t, lk, holdfast.CauseKicked); took > 2*time.Second {
			t.Errorf("told after %v", took)
		}
		time.Sleep(time.Minute)
		q, err := ops.Show(t.Context(), admin.Lock, "job")
		if h, _ := q.Holder(); err != nil || len(q.Entries) != 2 || h.Token != lk.Token() || h.Notice.Reason != "deploy" ||
			!strings.Contains(h.String(), `asked to let go by "ops": "deploy"`) {
			t.Errorf("a minute later: %v, %v", q.Entries, err)
		}
		for range 2 {
			var lost *holdfast.LostError
			if err := lk.Unlock(t.Context()); !errors.As(err, &lost) || lost.Cause != holdfast.CauseKicked {
				t.Errorf("Unlock: %v", err)
			}
			if kvs := srv.Keys(jobEntries); len(kvs) == 0 || kvs[0].CreateRevision == lk.Token().Revision() {
				t.Errorf("after Unlock: %v", kvs)
			}
		}
	})
}

// What is left to Unlock does not outlive its session, and does not keep Close waiting.
func TestKickedLockGoesWithItsSession(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		closed, revoked := mustLock(t, a, "job"), mustLock(t, a, "other")
		for name, lk := range map[string]*locker.Lock{"job": closed, "other": revoked} {
			if err := ops.Kick(t.Context(), name, lk.Token(), "deploy"); err != nil {
				t.Fatal(err)
			}
			ends(t, lk, holdfast.CauseKicked)
		}
		srv.Delete(revoked.Key()) // by hand: the session may use the name again
		time.Sleep(2 * time.Second)
		if lk := mustLock(t, a, "other"); lk.Unlock(t.Context()) != nil {
			t.Error("the name of a deleted entry stays blocked in its session")
		}
		begin := time.Now()
		if err := a.Close(t.Context()); err != nil || time.Since(begin) > time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(begin))
		}
		if kvs := srv.Keys(jobEntries); len(kvs) != 0 {
			t.Errorf("after Close: %v", kvs)
		}
	})
}

func TestKickedLockOfALostLeaseEndsInGoodOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		lk := mustLock(t, a, "job")
		if err := ops.Kick(t.Context(), "job", lk.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		ends(t, lk, holdfast.CauseKicked)
		srv.Revoke(a.Lease())
		time.Sleep(2 * time.Second)
		next := mustLock(t, a, "job") // under the next lease, although Unlock was not called
		ends(t, lk, holdfast.CauseKicked)
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A request and a release at the same time: whichever etcd carries out first, the name is free at once, and an error
// says that the token does not hold.
func TestKickAndReleaseAtOnce(t *testing.T) {
	for delay := range 8 {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
			a, _ := newSession(t, srv, "a")
			b, _ := newSession(t, srv, "b")
			ops := newAdministrator(srv, "ops")
			lk, _ := queueUp(t, "job", a, b)
			kicked := make(chan error, 1)
			go func() { kicked <- ops.Kick(t.Context(), "job", lk.Token(), "deploy") }()
			time.Sleep(time.Duration(delay) * time.Millisecond)
			if err := lk.Unlock(t.Context()); err != nil {
				t.Errorf("%d: Unlock: %v", delay, err)
			}
			err := <-kicked
			var failed *admin.HolderError
			switch {
			case err == nil:
			case !errors.As(err, &failed) || !errors.Is(err, admin.ErrNotHeld) || failed.Holder.Owner != "b":
				t.Errorf("%d: Kick: %v", delay, err)
			case strings.Contains(err.Error(), `owner "b"`) && len(ops.records) == 0:
			default:
				t.Errorf("%d: %v, records %+v", delay, err, ops.records)
			}
			time.Sleep(5 * time.Second)
			q, err := ops.Show(t.Context(), admin.Lock, "job")
			if h, _ := q.Holder(); err != nil || h.Owner != "b" || h.Notice != (view.Notice{}) || h.HeldAt.IsZero() {
				t.Errorf("%d: the next holder: %v, %v", delay, h, err)
			}
		})
	}
}

// The hand-off to a goroutine of the same session puts an entry of its own, which no request was meant for.
func TestKickAndHandOffAtOnce(t *testing.T) {
	for delay := range 8 {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
			a, _ := newSession(t, srv, "a")
			ops := newAdministrator(srv, "ops")
			lk := mustLock(t, a, "job")
			next := make(chan *locker.Lock, 1)
			go func() {
				lk, err := locker.NewMutex(a, "job").Lock(t.Context())
				if err != nil {
					t.Error(err)
				}
				next <- lk
			}()
			synctest.Wait()
			kicked := make(chan error, 1)
			go func() { kicked <- ops.Kick(t.Context(), "job", lk.Token(), "deploy") }()
			time.Sleep(time.Duration(delay) * time.Millisecond)
			if err := lk.Unlock(t.Context()); err != nil {
				t.Errorf("%d: Unlock: %v", delay, err)
			}
			if err := <-kicked; err != nil && !errors.Is(err, admin.ErrNotHeld) {
				t.Errorf("%d: Kick: %v", delay, err)
			}
			second := <-next
			time.Sleep(5 * time.Second)
			if err := second.Check(); err != nil {
				t.Errorf("%d: the next holder: %v", delay, err)
			}
			if err := second.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The first of two requests stands. Both administrators are told that the holder is asked, and both are recorded.
func TestTwoKicksAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		one, two := newAdministrator(srv, "one"), newAdministrator(srv, "two")
		lk := mustLock(t, a, "job")
		both := make(chan error, 2)
		for _, ops := range []*administrator{one, two} {
			go func() { both <- ops.Kick(t.Context(), "job", lk.Token(), "deploy") }()
		}
		for range 2 {
			if err := <-both; err != nil {
				t.Error(err)
			}
		}
		puts := 0
		for _, c := range srv.History(lk.Key()) {
			if !c.Deleted {
				puts++
			}
		}
		if puts != 2 || len(one.records) != 1 || len(two.records) != 1 {
			t.Errorf("%d puts of the entry, %d and %d records", puts, len(one.records), len(two.records))
		}
		ends(t, lk, holdfast.CauseKicked)
		_ = lk.Unlock(t.Context())
	})
}

// The holder writes into its entry since when it holds, a second after the grant. That undoes no request, and hides
// none from the poll, at whichever moment either of them comes, and whether it is answered or not.
func TestKickAndTheHoldersOwnUpdateAtOnce(t *testing.T) {
	own := func(c etcdfake.Call) bool {
		r, ok := c.Request.(*pb.TxnRequest)
		return ok && len(r.Success) > 0 && r.Success[0].GetRequestTxn() != nil
	}
	for what, fate := range map[string]etcdfake.Fate{
		"answered": {}, "slow": {Request: 40 * time.Millisecond}, "slow answer": {Reply: 40 * time.Millisecond},
		"reply lost": {LoseReply: true}, "silent": {LoseReply: true, Silent: true}, "late": {Request: 700 * time.Millisecond},
	} {
		for delay := range 12 {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
				a, link := newSession(t, srv, "a")
				ops := newAdministrator(srv, "ops")
				lk := mustLock(t, a, "job")
				written := make(chan struct{}, 100)
				link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					f := etcdfake.Fate{Request: time.Millisecond, Reply: time.Millisecond}
					if own(c) {
						written <- struct{}{}
						f.Request, f.Reply = f.Request+fate.Request, f.Reply+fate.Reply
						f.LoseReply, f.Silent = fate.LoseReply, fate.Silent
					}
					return f
				})
				<-written
				time.Sleep(time.Duration(delay) * 7 * time.Millisecond)
				if err := ops.Kick(t.Context(), "job", lk.Token(), "deploy"); err != nil {
					t.Errorf("%s, %d: %v", what, delay, err)
				}
				if took := ends(t, lk, holdfast.CauseKicked); took > 2*time.Second {
					t.Errorf("%s, %d: told after %v", what, delay, took)
				}
				link.Plan(nil)
				_ = lk.Unlock(t.Context())
			})
		}
	}
}

// A reply is lost at the write: the request stands once, and Kick says so.
func TestKickWhoseReplyIsLostStandsOnce(t *testing.T) {
	write := func(c etcdfake.Call) bool {
		r, ok := c.Request.(*pb.TxnRequest)
		return ok && len(r.Success) > 0 && r.Success[0].GetRequestPut() != nil
	}
	for what, fate := range map[string]etcdfake.Fate{
		"reply": {LoseReply: true}, "reply, silently": {LoseReply: true, Silent: true},
		"request": {LoseRequest: true}, "request, silently": {LoseRequest: true, Silent: true},
	} {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
			a, _ := newSession(t, srv, "a")
			ops := newAdministrator(srv, "ops")
			lk := mustLock(t, a, "job")
			lost := false
			ops.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
				if write(c) && !lost {
					lost = true
					return fate
				}
				return etcdfake.Fate{}
			})
			if err := ops.Kick(t.Context(), "job", lk.Token(), "deploy"); err != nil || !lost {
				t.Errorf("%s: %v", what, err)
			}
			ends(t, lk, holdfast.CauseKicked)
			_ = lk.Unlock(t.Context())
			if len(ops.records) != 1 {
				t.Errorf("%s: records %+v", what, ops.records)
			}
		})
	}
}

// No reply comes at all: the outcome is unknown and recorded as such, also if the holder is gone by the time that etcd
// answers again.
func TestKickWithoutAnAnswerIsOfUnknownOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		lk := mustLock(t, a, "job")
		ops.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			r, ok := c.Request.(*pb.TxnRequest)
			return etcdfake.Fate{LoseReply: ok && len(r.Compare) > 0, Silent: true}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := ops.Kick(ctx, "job", lk.Token(), "deploy")
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Kick: %v", err)
		}
		if len(ops.records) != 1 || ops.records[0].Err == nil {
			t.Errorf("records %+v", ops.records)
		}
		ends(t, lk, holdfast.CauseKicked)
		_ = lk.Unlock(t.Context())
	})
}

// A holder that is cut off learns of a request when it reaches etcd again. One that is dead never does.
func TestHolderThatIsCutOffLearnsOfAKickLater(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, link := newSession(t, srv, "a")
		ops := newAdministrator(srv, "ops")
		lk := mustLock(t, a, "job")
		time.Sleep(3 * time.Second)
		link.BlackHole()
		if err := ops.Kick(t.Context(), "job", lk.Token(), "deploy"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		if err := lk.Check(); err != nil && !errors.Is(err, holdfast.ErrSuspended) {
			t.Errorf("while it is cut off: %v", err)
		}
		link.Heal()
		if took := ends(t, lk, holdfast.CauseKicked); took > 3*time.Second {
			t.Errorf("told %v after etcd could be reached again", took)
		}
		_ = lk.Unlock(t.Context())
	})
}
