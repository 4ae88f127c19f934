package queue_test

import (
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// permitWithWaiter returns a hold of all permits, and a call that waits for some, whose process it returns.
func permitWithWaiter(t *testing.T, srv *etcdfake.Server, limit, weight int) (
	*holdtest.Process, func(), <-chan holdtest.Result,
) {
	t.Helper()
	h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(limit, limit))
	p := holdtest.Start(t, srv)
	done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Permits(limit, weight))
	kit.Queued(t, srv, permitsX, 2)
	return p, func() { holdtest.MustRelease(t, h) }, done
}

// admitted returns what a call returns that gets its permits.
func admitted(t *testing.T, done <-chan holdtest.Result) holdtest.Result {
	t.Helper()
	r := <-done
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	return r
}

// The role of the front may not write. It says so, and asks no more.
func TestFrontWhoseAdmissionIsRefusedSaysSo(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, release, done := permitWithWaiter(t, srv, 1, 1)
		p.PlanAll("mark", etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied})
		release()
		if r := <-done; status.Code(r.Err) != codes.PermissionDenied || p.Counts()["mark"] != 1 {
			t.Errorf("%v; sent %v", r.Err, p.Counts())
		}
		kit.NothingStands(t, srv)
	})
}

// The turn of the front is deleted while the request to mark it travels. Other turns are marked by the same request.
func TestFrontHoldsByItsOwnMarkOnly(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, release, front := permitWithWaiter(t, srv, 2, 1)
		own := srv.Keys(turnsX)[0]
		second := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 1))
		kit.Queued(t, srv, permitsX, 3)
		p.PlanOne("mark", etcdfake.Fate{Request: 10 * kit.OneWay})
		release()
		time.Sleep(6 * kit.OneWay)
		srv.Delete(string(own.Key))
		for name, done := range map[string]<-chan holdtest.Result{"the front": front, "the second": second} {
			r := admitted(t, done)
			if r.H.Created() == own.CreateRevision {
				t.Errorf("%s holds by the turn that was deleted", name)
			}
			holdtest.MustRelease(t, r.H)
		}
	})
}

// A turn that no client serves fits, and the one behind it does not. That one marks the first, and holds when there is
// room for it. The text in a turn that is not ours stays.
func TestTurnThatMarksOthersDoesNotHoldBesideThem(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(2, 2))
		hangs := kit.JoinAs(t, srv, turnsX, func(id clientv3.LeaseID) string {
			return fmt.Sprintf("1-%x-AAAAAAAAAAAAAAAA", int64(id))
		})
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 2))
		kit.Queued(t, srv, permitsX, 3)
		holdtest.MustRelease(t, h)
		time.Sleep(10 * time.Second)
		stillWaits(t, done)
		if kv := srv.Keys(hangs.Key)[0]; kv.Version != 2 || string(kv.Value) != "theirs" {
			t.Errorf("the turn that fits was put %d times, and says %q", kv.Version, kv.Value)
		}
		hangs.Release()
		holdtest.MustRelease(t, admitted(t, done).H)
	})
}

// People see since when a permit is held, not since when it waits.
func TestMarkSaysSinceWhenThePermitIsHeld(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		_, release, done := permitWithWaiter(t, srv, 1, 1)
		time.Sleep(time.Minute / 2)
		release()
		r := admitted(t, done)
		v, ok := layout.DecodeValue(srv.Keys(r.H.Key())[0].Value)
		if held := r.At.Sub(v.Held); !ok || held < 0 || held > kit.Prompt {
			t.Errorf("held since %v, %v before it was granted", v.Held, held)
		}
		holdtest.MustRelease(t, r.H)
	})
}

// The turn ahead holds already. So this one is the front, and hears of any permit that goes.
func TestTurnBehindOneThatHoldsIsTheFront(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		_, release, waited := permitWithWaiter(t, srv, 2, 1)
		release()
		marked := admitted(t, waited)
		other := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(2, 1))
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 1))
		kit.Queued(t, srv, permitsX, 3)
		holdtest.MustRelease(t, other)
		holdtest.MustRelease(t, heldNow(t, done))
		holdtest.MustRelease(t, marked.H)
	})
}

// An administrator writes to a permit that waits for the delay of a dead claim. It was put twice then, as a turn that
// was marked, and must not hold for that.
func TestPermitThatIsWrittenToInItsDelayDoesNotHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		holder := holdtest.Start(t, srv)
		holdtest.MustAcquire(t, holder.Permits(1, 1))
		revokeUntold(srv, holder)
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(1, 1))
		kit.Queued(t, srv, permitsX, 1)
		own := srv.Keys(permitsX)[0]
		if _, err := srv.Client(t).Put(t.Context(), string(own.Key), "", clientv3.WithIgnoreLease()); err != nil {
			t.Fatal(err)
		}
		written := time.Now()
		r := admitted(t, done)
		if r.H.Created() == own.CreateRevision {
			t.Errorf("it holds by the permit that was written to, %v later", r.At.Sub(written))
		}
		holdtest.MustRelease(t, r.H)
	})
}

// A permit that comes, or a turn, makes no room.
func TestFrontLooksOnlyAtWhatMayEndItsWait(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, release, front := permitWithWaiter(t, srv, 1, 1)
		p.Plan(nil)
		var others []<-chan holdtest.Result
		for range 3 {
			others = append(others, holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(1, 1)))
			time.Sleep(20 * kit.OneWay)
		}
		if n := p.Counts(); n["event"] == 0 || n["read"] != 0 {
			t.Errorf("sent %v", n)
		}
		release()
		for _, done := range append([]<-chan holdtest.Result{front}, others...) {
			holdtest.MustRelease(t, admitted(t, done).H)
		}
	})
}

// Another session has marked the turn of the front, which hears it.
func TestFrontThatAnotherSessionMarksHoldsAtOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		_, release, front := permitWithWaiter(t, srv, 1, 1)
		own := srv.Keys(turnsX)[0]
		cli := srv.Client(t)
		if _, err := cli.Put(t.Context(), string(own.Key), string(own.Value), clientv3.WithIgnoreLease()); err != nil {
			t.Fatal(err)
		}
		h := heldNow(t, front)
		release()
		holdtest.MustRelease(t, h)
	})
}

// More sessions have died than one look asks about.
func TestPermitsOfManyDeadSessionsCostOneDelay(t *testing.T) {
	const perLook, perClear = (queue.MaxOps - 3) / 2, queue.MaxOps - 1
	const n = 2*perLook + 1
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, n)
		var gone []*kit.Peer
		for range n {
			gone = append(gone, kit.JoinPermit(t, srv, permitsX, 1))
		}
		for _, peer := range gone {
			peer.Revoke()
		}
		p := holdtest.Start(t, srv)
		p.Plan(nil)
		began := time.Now()
		h := holdtest.MustAcquire(t, p.Permits(n, 1))
		took, sent := time.Since(began), p.Counts()
		if looks := 3 + 1 + 1; sent["read"] != looks || sent["clear"] != (n+perClear-1)/perClear {
			t.Errorf("sent %v", sent)
		}
		if took < kit.LockDelay || took > kit.LockDelay+kit.Prompt {
			t.Errorf("held after %v", took)
		}
		holdtest.MustRelease(t, h)
		kit.NothingStands(t, srv)
	})
}

// Two permits fit, and the younger one's session has died. That an older one stands does not say that it never held.
func TestDeadPermitBesideOneThatStandsIsWaitedFor(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		kit.SetLimit(t, srv, 2)
		older, younger := kit.JoinPermit(t, srv, permitsX, 1), kit.JoinPermit(t, srv, permitsX, 1)
		younger.Revoke()
		began := time.Now()
		r := admitted(t, holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(2, 1)))
		delayed(t, r, began, kit.LockDelay)
		holdtest.MustRelease(t, r.H)
		older.Release()
	})
}

// An administrator moves the turn of the front to a lease that ends soon, or writes to it after it was marked. It was
// put twice then, or three times, and the session has marked it neither time.
func TestTurnThatAnotherClientWritesDoesNotHold(t *testing.T) {
	for name, writes := range map[string]int{"moved": 1, "marked, and written to": 2} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				_, release, front := permitWithWaiter(t, srv, 1, 1)
				own, cli := srv.Keys(turnsX)[0], srv.Client(t)
				lease, err := cli.Grant(t.Context(), 3)
				if err != nil {
					t.Fatal(err)
				}
				onLease := clientv3.WithLease(lease.ID)
				if writes > 1 {
					onLease = clientv3.WithIgnoreLease()
				}
				for range writes {
					if _, err := cli.Put(t.Context(), string(own.Key), string(own.Value), onLease); err != nil {
						t.Fatal(err)
					}
				}
				release()
				if r := admitted(t, front); r.H.Created() == own.CreateRevision {
					t.Error("it holds by the turn that was written to")
				} else {
					holdtest.MustRelease(t, r.H)
				}
			})
		})
	}
}

// The caller gives up while the request that replaces its permit by a turn is under way. Nothing of it stays.
func TestCallThatEndsAsItsTurnIsPutLeavesNothing(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"lost": {LoseRequest: true, Silent: true}, "late": {Request: 10 * time.Second}, "no reply": holdtest.LostReply,
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(1, 1))
				p := holdtest.Start(t, srv)
				p.PlanAll("hand-off", fate)
				r := <-holdtest.AcquireLater(kit.Within(t, time.Second), p.Permits(1, 1))
				if r.Err == nil || p.Counts()["hand-off"] == 0 {
					t.Errorf("%v; sent %v", r.Err, p.Counts())
				}
				p.Plan(nil)
				time.Sleep(20 * time.Second)
				holdtest.MustRelease(t, h)
				kit.NothingStands(t, srv)
				if n := p.Permits(1, 1).Used(); n != 0 {
					t.Errorf("%d keys are in use", n)
				}
			})
		})
	}
}

// etcd does not take the turn that replaces a permit without room. Its error is told.
func TestCallWhoseTurnIsRefusedSaysSo(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(1, 1))
		p := holdtest.Start(t, srv)
		p.PlanAll("hand-off", etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied})
		r := <-holdtest.AcquireLater(kit.Within(t, time.Minute), p.Permits(1, 1))
		if status.Code(r.Err) != codes.PermissionDenied {
			t.Errorf("Acquire: %v", r.Err)
		}
		holdtest.MustRelease(t, h)
		kit.NothingStands(t, srv)
	})
}

// The front hears late that there is room, so the turn behind it marks both. What the front says of itself stays: by it
// an administrator finds the holder.
func TestTurnThatIsMarkedFromBehindKeepsItsValue(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(2, 2))
		p := holdtest.Start(t, srv)
		p.PlanAll("event", etcdfake.Fate{Reply: time.Minute})
		front := holdtest.AcquireLater(kit.Within(t, 2*time.Minute), p.Permits(2, 1))
		kit.Queued(t, srv, permitsX, 2)
		second := holdtest.AcquireLater(kit.Within(t, 2*time.Minute), holdtest.Start(t, srv).Permits(2, 1))
		kit.Queued(t, srv, permitsX, 3)
		turns := srv.Keys(kit.Turns("x"))
		holdtest.MustRelease(t, h)
		r := admitted(t, second)
		for _, turn := range turns {
			kv := srv.Keys(string(turn.Key))[0]
			was, _ := layout.DecodeValue(turn.Value)
			is, ok := layout.DecodeValue(kv.Value)
			if kv.Version != 2 || !ok || is.Identity != was.Identity || is.ToldWithin != was.ToldWithin {
				t.Errorf("%s was put %d times: %s, was %s", kv.Key, kv.Version, kv.Value, turn.Value)
			}
		}
		holdtest.MustRelease(t, r.H)
		holdtest.MustRelease(t, admitted(t, front).H)
	})
}
