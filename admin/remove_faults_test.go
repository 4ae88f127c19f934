package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// A holder that is cut off cannot be told in time; nothing but its fence closes that gap. It is told when it reaches
// etcd again, and its late release does the next holder no harm.
func TestRemovedHolderThatWasCutOffIsToldWhenItReachesEtcd(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		granted := j.waiter(t, false)
		j.link.BlackHole()
		mustRemove(t, j.ops, j.lk)
		n := <-granted
		if n.lk.Token() <= j.lk.Token() {
			t.Errorf("token %v after %v", n.lk.Token(), j.lk.Token())
		}
		j.link.Heal()
		ends(t, j.lk, holdfast.CauseEntryDeleted)
		_ = j.lk.Unlock(t.Context())
		time.Sleep(time.Second)
		if err := n.lk.Check(); err != nil {
			t.Error(err)
		}
		after(t, n, n.at, 0)
	})
}

// The remover ends at any point. The holder was asked or not, and nothing else has happened; another removal
// completes it.
func TestRemoverThatEndsHalfwayHarmsNothing(t *testing.T) {
	for step, reaches := range []string{"nothing", "the request", "the lease", "the move"} {
		whileHeld(t, func(t *testing.T, j *job) {
			crashes := newAdministrator(j.srv, "crashes")
			granted := j.waiter(t, true)
			writes := 0
			crashes.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
				f := etcdfake.Fate{Request: time.Millisecond, Reply: time.Millisecond}
				r, ok := c.Request.(*pb.TxnRequest)
				if c.Method == "LeaseGrant" || ok && len(r.Compare) > 0 {
					writes++
					f.LoseRequest, f.Silent = writes > step, true
				}
				return f
			})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			begin := time.Now()
			err := crashes.Remove(ctx, holdfast.KindLock, "job", j.lk.Token(), "wedged")
			if (err == nil) != (reaches == "the move") {
				t.Errorf("%s: %v", reaches, err)
			}
			cancel()
			if reaches == "nothing" {
				time.Sleep(time.Minute)
				if err := j.lk.Check(); err != nil {
					t.Errorf("%s: %v", reaches, err)
				}
				begin = mustRemove(t, j.ops, j.lk)
			}
			ends(t, j.lk, holdfast.CauseRemoved)
			told := time.Now()
			n := <-granted
			if took := n.at.Sub(begin); took < toldWithin-slack || n.at.Sub(told) > toldWithin+slack {
				t.Errorf("%s: the next holder follows after %v, %v after the holder was told", reaches, took, n.at.Sub(told))
			}
			after(t, n, n.at, 0)
			_ = j.lk.Unlock(t.Context())
		})
	}
}

// A reply is lost at each write in turn, or is late, or the request is.
func TestRemovalWithLostAndLateMessages(t *testing.T) {
	fates := map[string]etcdfake.Fate{
		"reply lost": {LoseReply: true}, "reply lost in silence": {LoseReply: true, Silent: true},
		"request lost": {LoseRequest: true}, "request lost in silence": {LoseRequest: true, Silent: true},
		"late": {Request: 2800 * time.Millisecond}, "too late": {Request: 3900 * time.Millisecond},
		"far too late": {Request: time.Minute}, "late reply": {Reply: 3 * time.Second},
	}
	for what, fate := range fates {
		for write := 1; write <= 3; write++ {
			for _, all := range []bool{false, true} { // of the copies that are sent beside a slow request
				whileHeld(t, func(t *testing.T, j *job) {
					granted := j.waiter(t, true)
					kind := func(c etcdfake.Call) int {
						r, ok := c.Request.(*pb.TxnRequest)
						switch {
						case c.Method == "LeaseGrant":
							return 2
						case !ok || len(r.Compare) == 0:
							return 0
						case r.Success[0].GetRequestPut().GetIgnoreLease():
							return 1
						default:
							return 3
						}
					}
					began, hit := time.Now(), false
					j.ops.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
						f := etcdfake.Fate{Request: time.Millisecond, Reply: time.Millisecond}
						if kind(c) == write && (!hit || all && time.Since(began) < 8*time.Second) {
							hit = true
							f.Request, f.Reply = f.Request+fate.Request, f.Reply+fate.Reply
							f.LoseReply, f.LoseRequest, f.Silent = fate.LoseReply, fate.LoseRequest, fate.Silent
						}
						return f
					})
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					where := fmt.Sprintf("%s, write %d, all copies: %v", what, write, all)
					err := j.ops.Remove(ctx, holdfast.KindLock, "job", j.lk.Token(), "wedged")
					// The holder was told, and gone, before the first request was answered.
					gone := errors.Is(err, admin.ErrNotHeld) && errors.Is(err, holdfast.ErrOutcomeUnknown) && write == 1 && all
					if err != nil && !gone || !hit {
						t.Errorf("%s: %v", where, err)
					}
					n := <-granted // which checks that the holder was told
					if !t.Failed() {
						ends(t, j.lk, holdfast.CauseRemoved)
					}
					time.Sleep(2 * time.Minute) // what is late arrives
					if err := n.lk.Check(); err != nil {
						t.Errorf("%s: the next holder: %v", where, err)
					}
					if err := n.lk.Unlock(t.Context()); err != nil {
						t.Errorf("%s: %v", where, err)
					}
					_ = j.lk.Unlock(t.Context())
				})
			}
		}
	}
}

// A release with MinHold that comes at the same time as the removal frees the name as late as either of them, and no
// next holder before the release.
func TestRemovalAndReleaseWithMinHoldAtOnce(t *testing.T) {
	for delay := range 8 {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
			a, _ := newSession(t, srv, "a")
			b, _ := newSession(t, srv, "b")
			ops := newAdministrator(srv, "ops")
			lk, err := locker.NewMutex(a, "job").With(locker.Options{MinHold: time.Minute}).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			granted := waitFor(t, b, lk, true)
			begin, removed := time.Now(), make(chan error, 1)
			go func() { removed <- ops.Remove(t.Context(), holdfast.KindLock, "job", lk.Token(), "wedged") }()
			time.Sleep(time.Duration(delay) * time.Millisecond)
			if err := lk.Unlock(t.Context()); err != nil {
				t.Errorf("%d: Unlock: %v", delay, err)
			}
			if err := <-removed; err != nil && !errors.Is(err, admin.ErrNotHeld) {
				t.Errorf("%d: Remove: %v", delay, err)
			}
			n := <-granted
			if took := n.at.Sub(begin); took < toldWithin || took > time.Minute+slack {
				t.Errorf("%d: the next holder follows after %v", delay, took)
			}
			_ = n.lk.Unlock(t.Context())
		})
	}
}
