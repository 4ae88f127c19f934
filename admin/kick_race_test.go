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
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/view"
)

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
			go func() { kicked <- ops.Kick(t.Context(), holdfast.KindLock, "job", lk.Token(), "deploy") }()
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
			q, err := ops.Show(t.Context(), holdfast.KindLock, "job")
			if h, _ := q.Holder(); err != nil || h.Owner != "b" || h.Notice != (view.Notice{}) || h.HeldAt.IsZero() {
				t.Errorf("%d: the next holder: %v, %v", delay, h, err)
			}
		})
	}
}

// The hand-off to a goroutine of the same session puts an entry of its own, which no request was meant for.
func TestKickAndHandOffAtOnce(t *testing.T) {
	for delay := range 8 {
		whileHeld(t, func(t *testing.T, j *job) {
			next := make(chan *locker.Lock, 1)
			go func() {
				lk, err := locker.NewMutex(j.a, "job").Lock(t.Context())
				if err != nil {
					t.Error(err)
				}
				next <- lk
			}()
			synctest.Wait()
			kicked := make(chan error, 1)
			go func() { kicked <- j.ops.Kick(t.Context(), holdfast.KindLock, "job", j.lk.Token(), "deploy") }()
			time.Sleep(time.Duration(delay) * time.Millisecond)
			if err := j.lk.Unlock(t.Context()); err != nil {
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
			go func() { both <- ops.Kick(t.Context(), holdfast.KindLock, "job", lk.Token(), "deploy") }()
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
			whileHeld(t, func(t *testing.T, j *job) {
				written := make(chan struct{}, 100)
				j.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
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
				if err := j.ops.Kick(t.Context(), holdfast.KindLock, "job", j.lk.Token(), "deploy"); err != nil {
					t.Errorf("%s, %d: %v", what, delay, err)
				}
				if took := ends(t, j.lk, holdfast.CauseKicked); took > 2*time.Second {
					t.Errorf("%s, %d: told after %v", what, delay, took)
				}
				j.link.Plan(nil)
				_ = j.lk.Unlock(t.Context())
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
		whileHeld(t, func(t *testing.T, j *job) {
			lost := false
			j.ops.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
				if write(c) && !lost {
					lost = true
					return fate
				}
				return etcdfake.Fate{}
			})
			if err := j.ops.Kick(t.Context(), holdfast.KindLock, "job", j.lk.Token(), "deploy"); err != nil || !lost {
				t.Errorf("%s: %v", what, err)
			}
			ends(t, j.lk, holdfast.CauseKicked)
			_ = j.lk.Unlock(t.Context())
			if len(j.ops.records) != 1 {
				t.Errorf("%s: records %+v", what, j.ops.records)
			}
		})
	}
}

// No reply comes at all: the outcome is unknown and recorded as such, also if the holder is gone by the time that etcd
// answers again.
func TestKickWithoutAnAnswerIsOfUnknownOutcome(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		j.ops.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			r, ok := c.Request.(*pb.TxnRequest)
			return etcdfake.Fate{LoseReply: ok && len(r.Compare) > 0, Silent: true}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := j.ops.Kick(ctx, holdfast.KindLock, "job", j.lk.Token(), "deploy")
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Kick: %v", err)
		}
		if len(j.ops.records) != 1 || j.ops.records[0].Err == nil {
			t.Errorf("records %+v", j.ops.records)
		}
		ends(t, j.lk, holdfast.CauseKicked)
		_ = j.lk.Unlock(t.Context())
	})
}
