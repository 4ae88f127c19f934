package queue

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
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
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
func work(t *testing.T, q *Queue) *Hold {
	t.Helper()
	h := mustAcquireAs(t, q, Request{MinHold: minHold})
	time.Sleep(worked)
	return h
}

// workAndWait returns a process that holds x with MinHold and has worked, and another one that waits for x.
func workAndWait(t *testing.T, srv *etcdfake.Server, change ...func(*session.Options)) (
	a, b *process, h *Hold, next <-chan result,
) {
	t.Helper()
	a, b = start(t, srv, change...), start(t, srv)
	h = work(t, a.queue("x"))
	next = acquireLater(kit.Within(t, time.Minute), b.queue("x"))
	kit.Queued(t, srv, entriesX, 2)
	return a, b, h, next
}

// freeAfter checks for how long a name was taken: from the grant of h to the next one.
func freeAfter(t *testing.T, srv *etcdfake.Server, h *Hold, next <-chan result, least, most time.Duration) result {
	t.Helper()
	r := granted(t, srv, next)
	if taken := r.at.Sub(h.since); taken < least || taken > most {
		t.Errorf("the name was taken for %v, want %v to %v", taken, least, most)
	}
	return r
}

func TestNameStaysTakenUntilMinHoldHasPassed(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		a, _, h, next := workAndWait(t, srv, logTo(&log))
		a.Plan(nil)
		began := time.Now()
		mustRelease(t, h)
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
			!v.Released.Before(v.TakenUntil) || v.Held.Sub(h.since).Abs() > time.Second {
			t.Errorf("after the release %v stands, which says %+v", kv, v)
		}
		if a.queue("x").used() != 0 {
			t.Error("the session still accounts for the entry")
		}
		r := freeAfter(t, srv, h, next, minHold, keptFor)
		delayed(t, r, srv, h.Key(), false)
		if until := v.TakenUntil.Sub(r.at).Abs(); until > kit.Prompt {
			t.Errorf("free %v from the moment that the entry had told", until)
		}
		mustRelease(t, r.h)
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
		srv := etcdfake.New(&etcdfake.Options{MinTTL: time.Second})
		t.Cleanup(srv.Close)
		a, b := start(t, srv), start(t, srv)
		h := mustAcquireAs(t, a.queue("x"), Request{MinHold: worked})
		next := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
		time.Sleep(worked - time.Second/2)
		mustRelease(t, h)
		r := freeAfter(t, srv, h, next, worked, worked+time.Second/2+kit.Prompt)
		mustRelease(t, r.h)
	})
}

func TestCloseAfterMinHoldFreesTheName(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, _, h, next := workAndWait(t, srv)
		time.Sleep(minHold)
		a.Plan(nil)
		mustClose(t, a)
		r := granted(t, srv, next)
		delayed(t, r, srv, h.Key(), false)
		if n := a.Counts()["move"]; n != 0 {
			t.Errorf("Close has moved the entry %d times", n)
		}
		mustRelease(t, r.h)
	})
}

func TestReleaseAfterMinHoldIsLikeAnyOther(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquireAs(t, p.queue("x"), Request{MinHold: worked})
		time.Sleep(worked)
		synctest.Wait() // a poll may be due at this moment
		p.Plan(nil)
		mustRelease(t, h)
		if sent := p.Counts(); sent["remove"] != 1 || sent["move"]+sent["LeaseGrant"] != 0 {
			t.Errorf("Release sent %v", sent)
		}
		kit.NothingStands(t, srv)
	})
}

func TestGoroutineOfTheSameSessionWaitsForMinHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := work(t, p.queue("x"))
		next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
		time.Sleep(kit.Prompt)
		mustRelease(t, h)
		r := freeAfter(t, srv, h, next, minHold, keptFor)
		delayed(t, r, srv, h.Key(), false)
		if r.h.Key() == h.Key() {
			t.Error("the key of the entry that stood was used again")
		}
		mustRelease(t, r.h)
	})
}

func TestNextAcquisitionOfTheSameSessionWaitsForMinHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := work(t, p.queue("x"))
		mustRelease(t, h)
		freeAfter(t, srv, h, acquireLater(kit.Within(t, time.Minute), p.queue("x")), minHold, keptFor)
	})
}

func TestTryAcquireDuringMinHoldFindsTheNameTaken(t *testing.T) {
	for name, refuse := range map[string]error{"moved": nil, "not moved": rpctypes.ErrPermissionDenied} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := start(t, srv), start(t, srv)
				h := work(t, a.queue("x"))
				a.refuseMoves(refuse)
				if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, refuse) {
					t.Errorf("Release: %v", err)
				}
				for _, q := range []*Queue{a.queue("x"), b.queue("x")} {
					if _, err := q.TryAcquire(t.Context(), Request{}); !errors.Is(err, ErrOccupied) {
						t.Errorf("TryAcquire: %v", err)
					}
				}
				time.Sleep(keptFor)
				h, err := a.queue("x").TryAcquire(t.Context(), Request{})
				if err != nil {
					t.Fatal(err)
				}
				mustRelease(t, h)
			})
		})
	}
}

func TestMinHoldOutlastsClose(t *testing.T) {
	for name, c := range map[string]struct {
		before func(a *process, h *Hold)
		delay  time.Duration // of the waiter behind
	}{
		"after the release": {func(_ *process, h *Hold) { _ = h.Release(context.Background()) }, kit.LockDelay},
		"while held":        {func(*process, *Hold) {}, kit.LockDelay},
		"while the Grant is under way": {func(a *process, h *Hold) {
			a.PlanOne("LeaseGrant", silence)
			go func() { _ = h.Release(context.Background()) }()
			time.Sleep(kit.OneWay)
		}, kit.LockDelay},
		"while the move is under way": {func(a *process, h *Hold) {
			a.PlanOne("move", etcdfake.Fate{Request: 7 * time.Second, LoseReply: true, Silent: true})
			go func() { _ = h.Release(context.Background()) }()
			time.Sleep(4 * kit.OneWay)
		}, kit.LockDelay},
		"while etcd refuses to move it": {func(a *process, h *Hold) {
			a.refuseMoves(rpctypes.ErrPermissionDenied)
			_ = h.Release(context.Background())
			a.refuseMoves(nil)
		}, kit.LockDelay},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, _, h, next := workAndWait(t, srv)
				c.before(a, h)
				if err := a.Sess.Close(kit.Within(t, time.Minute)); err != nil {
					t.Error(err)
				}
				if !isFirst(srv, h) || srv.Keys(h.Key())[0].Lease == int64(h.Lease()) {
					t.Error("after Close the entry does not stand on a lease of its own")
				}
				r := freeAfter(t, srv, h, next, minHold, keptFor+c.delay)
				delayed(t, r, srv, h.Key(), c.delay > 0)
			})
		})
	}
}

func TestMinHoldCountsTheSleepOfTheMachine(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := start(t, srv), start(t, srv)
		h := work(t, a.queue("x"))
		const slept = 4 * time.Second
		a.Suspend(slept)
		next := acquireLater(kit.Within(t, time.Minute), b.queue("x"))
		kit.Queued(t, srv, entriesX, 2)
		mustRelease(t, h)
		freeAfter(t, srv, h, next, minHold-slept, keptFor-slept)
	})
}

// The name of a foreign prefix stays taken for etcd's own locks, too, which wait for
// every entry that was created before.
func TestForeignPrefixStaysTaken(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		ahead := kit.JoinAs(t, srv, "job/", func(id clientv3.LeaseID) string { return "a" })
		got := acquireLater(kit.Within(t, time.Minute), p.queueAt("job"))
		kit.Queued(t, srv, "job/", 2)
		ahead.Release()
		r := granted(t, srv, got)
		mustRelease(t, r.h)
		kit.NothingStands(t, srv)

		h := mustAcquireAs(t, p.queueAt("job"), Request{MinHold: minHold})
		mustRelease(t, h)
		behind := kit.JoinAs(t, srv, "job/", func(id clientv3.LeaseID) string { return "b" })
		time.Sleep(minHold - time.Second)
		if !isFirst(srv, h) {
			t.Error("the name is free too early")
		}
		time.Sleep(2 * time.Second)
		if kvs := srv.Keys("job/"); len(kvs) != 1 || string(kvs[0].Key) != behind.Key {
			t.Errorf("entries: %v", kvs)
		}
	})
}
