package queue_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

const (
	minHold = 30 * time.Second
	worked  = 5 * time.Second

	// keptFor bounds by how much longer a name is taken: leases are granted in seconds,
	// counted from the Grant.
	keptFor = minHold + time.Second + kit.Prompt
)

// work holds a lock with MinHold for the time worked.
func work(t *testing.T, q *queue.Queue) *hold.Hold {
	t.Helper()
	h := holdtest.MustAcquireAs(t, q, hold.Request{MinHold: minHold})
	time.Sleep(worked)
	return h
}

// workAndWait returns a process that holds x with MinHold and has worked, and another one that waits for x.
func workAndWait(t *testing.T, srv *etcdfake.Server, change ...func(*session.Options)) (
	a, b *holdtest.Process, h *hold.Hold, next <-chan holdtest.Result,
) {
	t.Helper()
	a, b = holdtest.Start(t, srv, change...), holdtest.Start(t, srv)
	h = work(t, a.Queue("x"))
	next = holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
	kit.Queued(t, srv, holdtest.EntriesX, 2)
	return a, b, h, next
}

// grantedAt is when a free name was granted: when the reply to its put had arrived.
func grantedAt(srv *etcdfake.Server, h *hold.Hold) time.Time { return putAt(srv, h).Add(kit.OneWay) }

// freeAfter checks for how long a name was taken: from the grant of h to the next one.
func freeAfter(t *testing.T, srv *etcdfake.Server, h *hold.Hold, next <-chan holdtest.Result, least,
	most time.Duration) holdtest.Result {
	t.Helper()
	r := holdtest.Granted(t, srv, next)
	if taken := r.At.Sub(grantedAt(srv, h)); taken < least || taken > most {
		t.Errorf("the name was taken for %v, want %v to %v", taken, least, most)
	}
	return r
}

func TestNameStaysTakenUntilMinHoldHasPassed(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		a, _, h, next := workAndWait(t, srv, holdtest.LogTo(&log))
		a.Plan(nil)
		began := time.Now()
		holdtest.MustRelease(t, h)
		if took := time.Since(began); took != 4*kit.OneWay {
			t.Errorf("Release took %v, want two round trips", took)
		}
		sent := a.Counts()
		if want := map[string]int{"LeaseGrant": 1, "move": 1}; !maps.Equal(sent, want) {
			t.Errorf("Release sent %v, want %v", sent, want)
		}
		kv := srv.Keys(h.Key())[0]
		v, ok := layout.DecodeValue(kv.Value)
		if kv.Lease == int64(h.Lease()) || kv.CreateRevision != h.Token().Revision() || !ok ||
			!v.Released.Before(v.TakenUntil) || v.Held.Sub(grantedAt(srv, h)).Abs() > time.Second {
			t.Errorf("after the release %v stands, which says %+v", kv, v)
		}
		if a.Queue("x").Used() != 0 {
			t.Error("the session still accounts for the entry")
		}
		r := freeAfter(t, srv, h, next, minHold, keptFor)
		holdtest.Delayed(t, r, srv, h.Key(), false)
		if until := v.TakenUntil.Sub(r.At).Abs(); until > kit.Prompt {
			t.Errorf("free %v from the moment that the entry had told", until)
		}
		holdtest.MustRelease(t, r.H)
		time.Sleep(time.Second)
		kit.NothingStands(t, srv)
		if n := a.Counts(); n["remove"] != 0 || log.Len() != 0 {
			t.Errorf("in the end the releasing session had sent %v, and logged %q", n, &log)
		}
	})
}

// Less than a second of MinHold is left, and etcd grants leases of one second here.
func TestNameIsNotKeptForMuchLongerThanMinHold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(etcdfake.Options{MinTTL: time.Second})
		t.Cleanup(srv.Close)
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := holdtest.MustAcquireAs(t, a.Queue("x"), hold.Request{MinHold: worked})
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
		time.Sleep(worked - time.Second/2)
		holdtest.MustRelease(t, h)
		r := freeAfter(t, srv, h, next, worked, worked+time.Second/2+kit.Prompt)
		holdtest.MustRelease(t, r.H)
	})
}

func TestCloseAfterMinHoldFreesTheName(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, _, h, next := workAndWait(t, srv)
		time.Sleep(minHold)
		a.Plan(nil)
		holdtest.MustClose(t, a)
		r := holdtest.Granted(t, srv, next)
		holdtest.Delayed(t, r, srv, h.Key(), false)
		if n := a.Counts()["move"]; n != 0 {
			t.Errorf("Close has moved the entry %d times", n)
		}
		holdtest.MustRelease(t, r.H)
	})
}

func TestReleaseAfterMinHoldIsLikeAnyOther(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquireAs(t, p.Queue("x"), hold.Request{MinHold: worked})
		time.Sleep(worked)
		synctest.Wait() // a poll may be due at this moment
		p.Plan(nil)
		holdtest.MustRelease(t, h)
		if sent := p.Counts(); sent["remove"] != 1 || sent["move"]+sent["LeaseGrant"] != 0 {
			t.Errorf("Release sent %v", sent)
		}
		kit.NothingStands(t, srv)
	})
}

func TestGoroutineOfTheSameSessionWaitsForMinHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := work(t, p.Queue("x"))
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		time.Sleep(kit.Prompt)
		holdtest.MustRelease(t, h)
		r := freeAfter(t, srv, h, next, minHold, keptFor)
		holdtest.Delayed(t, r, srv, h.Key(), false)
		if r.H.Key() == h.Key() {
			t.Error("the key of the entry that stood was used again")
		}
		holdtest.MustRelease(t, r.H)
	})
}

func TestNextAcquisitionOfTheSameSessionWaitsForMinHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := work(t, p.Queue("x"))
		holdtest.MustRelease(t, h)
		freeAfter(t, srv, h, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x")), minHold, keptFor)
	})
}

func TestTryAcquireDuringMinHoldFindsTheNameTaken(t *testing.T) {
	for name, refuse := range map[string]error{"moved": nil, "not moved": rpctypes.ErrPermissionDenied} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
				h := work(t, a.Queue("x"))
				a.RefuseMoves(refuse)
				if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, refuse) {
					t.Errorf("Release: %v", err)
				}
				for _, q := range []*queue.Queue{a.Queue("x"), b.Queue("x")} {
					if _, err := holdtest.TryAcquire(t.Context(), q); !errors.Is(err, queue.ErrOccupied) {
						t.Errorf("TryAcquire: %v", err)
					}
				}
				time.Sleep(keptFor)
				h, err := holdtest.TryAcquire(t.Context(), a.Queue("x"))
				if err != nil {
					t.Fatal(err)
				}
				holdtest.MustRelease(t, h)
			})
		})
	}
}

func TestMinHoldOutlastsClose(t *testing.T) {
	for name, c := range map[string]struct {
		before func(a *holdtest.Process, h *hold.Hold)
	}{
		"after the release": {func(_ *holdtest.Process, h *hold.Hold) { _ = h.Release(context.Background()) }},
		"while held":        {func(*holdtest.Process, *hold.Hold) {}},
		"while the Grant is under way": {func(a *holdtest.Process, h *hold.Hold) {
			a.PlanOne("LeaseGrant", holdtest.Silence)
			go func() { _ = h.Release(context.Background()) }()
			time.Sleep(kit.OneWay)
		}},
		"while the move is under way": {func(a *holdtest.Process, h *hold.Hold) {
			a.PlanOne("move", etcdfake.Fate{Request: 7 * time.Second, LoseReply: true, Silent: true})
			go func() { _ = h.Release(context.Background()) }()
			time.Sleep(4 * kit.OneWay)
		}},
		"while no move has a reply": {func(a *holdtest.Process, _ *hold.Hold) {
			a.PlanAll("move", etcdfake.Fate{LoseReply: true})
		}},
		"while etcd refuses to move it": {func(a *holdtest.Process, h *hold.Hold) {
			a.RefuseMoves(rpctypes.ErrPermissionDenied)
			_ = h.Release(context.Background())
			a.RefuseMoves(nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, _, h, next := workAndWait(t, srv)
				c.before(a, h)
				if err := a.Sess.Close(kit.Within(t, time.Minute)); err != nil {
					t.Error(err)
				}
				if !holdtest.IsFirst(srv, h) || srv.Keys(h.Key())[0].Lease == int64(h.Lease()) {
					t.Error("after Close the entry does not stand on a lease of its own")
				}
				r := freeAfter(t, srv, h, next, minHold, keptFor)
				holdtest.Delayed(t, r, srv, h.Key(), false) // its claim has gone with the move
			})
		})
	}
}

func TestMinHoldCountsTheSleepOfTheMachine(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
		h := work(t, a.Queue("x"))
		const slept = 4 * time.Second
		a.Suspend(slept)
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		holdtest.MustRelease(t, h)
		freeAfter(t, srv, h, next, minHold-slept, keptFor-slept)
	})
}

// The name of a foreign prefix stays taken for etcd's own locks, too, which wait for
// every entry that was created before.
func TestForeignPrefixStaysTaken(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		ahead := kit.JoinAs(t, srv, "job/", func(id clientv3.LeaseID) string { return "a" })
		got := holdtest.AcquireLater(kit.Within(t, time.Minute), p.QueueAt("job"))
		kit.Queued(t, srv, "job/", 2)
		ahead.Release()
		r := holdtest.Granted(t, srv, got)
		holdtest.MustRelease(t, r.H)
		kit.NothingStands(t, srv)

		h := holdtest.MustAcquireAs(t, p.QueueAt("job"), hold.Request{MinHold: minHold})
		holdtest.MustRelease(t, h)
		behind := kit.JoinAs(t, srv, "job/", func(id clientv3.LeaseID) string { return "b" })
		time.Sleep(minHold - time.Second)
		if !holdtest.IsFirst(srv, h) {
			t.Error("the name is free too early")
		}
		time.Sleep(2 * time.Second)
		if kvs := srv.Keys("job/"); len(kvs) != 1 || string(kvs[0].Key) != behind.Key {
			t.Errorf("entries: %v", kvs)
		}
	})
}
