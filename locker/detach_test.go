package locker_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// detachable is a Lock, a ReadLock or a Permit.
type detachable interface {
	Check() error
	Key() string
	Name() string
	Detach(ctx context.Context, within time.Duration) (locker.Ticket, error)
	WithContext(ctx context.Context) (context.Context, context.CancelFunc)
	AcquiredRevision() int64
	String() string
}

func mustDetach(t *testing.T, lk detachable, within time.Duration) locker.Ticket {
	t.Helper()
	ticket, err := lk.Detach(kit.Within(t, time.Minute), within)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func mustAttach(t *testing.T, sess *session.Session, ticket locker.Ticket, o locker.Options) *locker.Lock {
	t.Helper()
	lk, err := locker.Attach(kit.Within(t, time.Minute), sess, ticket, o)
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// A lock is acquired in one process and released in another. The first one has gone by then. Those behind wait on.
func TestDetachedLockIsReleasedByAnotherProcess(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := kit.Start(t, srv), kit.Start(t, srv)
		lk := mustLock(t, locker.NewMutex(a.Sess, "x"))
		ctx, cancel := lk.WithContext(t.Context())
		defer cancel()
		ticket := mustDetach(t, lk, time.Hour)
		if err := lk.Check(); !errors.Is(err, holdfast.ErrReleased) || !errors.Is(context.Cause(ctx), holdfast.ErrReleased) {
			t.Errorf("Check %v, cause %v", err, context.Cause(ctx))
		}
		mustUnlock(t, lk)
		waiter := lockLater(t.Context(), locker.NewMutex(kit.Start(t, srv).Sess, "x"))
		if err := a.Sess.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		next := mustAttach(t, b.Sess, ticket, locker.Options{Owner: "b"})
		if next.Token() != lk.Token() || next.Key() != lk.Key() || next.Check() != nil || !owns(srv, next) {
			t.Errorf("%v, %v: %v, in etcd %v", lk, next, next.Check(), kit.Standing(srv, "x"))
		}
		time.Sleep(time.Hour)
		if next.Check() != nil || len(waiter) > 0 {
			t.Errorf("Check %v, and %d waiters hold", next.Check(), len(waiter))
		}
		released := time.Now()
		mustUnlock(t, next)
		if r := <-waiter; r.err != nil || time.Since(released) > time.Second {
			t.Errorf("the waiter holds after %v: %v", time.Since(released), r.err)
		} else {
			mustUnlock(t, r.lk)
		}
		kit.NothingStands(t, srv)
	})
}

// A handle of each kind has its own function, and goes on as what it was.
func TestReadLockAndPermitAreAttachedAsWhatTheyWere(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, q := kit.Start(t, srv), kit.Start(t, srv)
		rw, sem := locker.NewRWMutex(p.Sess, "x"), locker.NewSemaphore(p.Sess, "x", 3)
		rd, err := rw.RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		permit := mustPermit(t, sem, 2)
		reads, permits := mustDetach(t, rd, time.Hour), mustDetach(t, permit, time.Hour)
		if rd, err = locker.AttachRead(t.Context(), q.Sess, reads, locker.Options{}); err != nil {
			t.Fatal(err)
		}
		other, err := rw.RLock(kit.Within(t, time.Second)) // beside it
		if err != nil {
			t.Fatal(err)
		}
		if permit, err = locker.AttachPermit(t.Context(), q.Sess, permits, locker.Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := sem.TryAcquire(t.Context(), 2); permit.Weight() != 2 || !errors.Is(err, locker.ErrLocked) {
			t.Errorf("weight %d, and beside it: %v", permit.Weight(), err)
		}
		mustUnlock(t, rd)
		mustUnlock(t, other)
		mustGiveBack(t, permit)
		writer := mustLock(t, rw)
		mustUnlock(t, mustAttach(t, q.Sess, mustDetach(t, writer, time.Hour), locker.Options{}))
		kit.NothingStands(t, srv)
	})
}

// What has no ticket goes on: nothing was sent.
func TestDetachRefusesWhatHasNoTicket(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		rw := locker.NewRWMutex(p.Sess, "x")
		downgradable, err := rw.LockDowngradable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		plain := mustLock(t, locker.NewMutex(p.Sess, "plain"))
		for what, c := range map[string]struct {
			lk       detachable
			within   time.Duration
			argument string
		}{
			"several entries": {downgradable, time.Hour, "receiver"},
			"a tree lock":     {mustLock(t, locker.NewTreeMutex(p.Sess, "a")), time.Hour, "receiver"},
			"a foreign one":   {mustLock(t, locker.NewMutexAt(p.Sess, "theirs/x")), time.Hour, "receiver"},
			"a shared one": {
				mustLock(t, locker.NewMutex(p.Sess, "y").With(locker.Options{Reentrant: true})), time.Hour, "receiver",
			},
			"too short": {plain, time.Second - 1, "within"},
			"too long":  {plain, 24*time.Hour + 1, "within"},
		} {
			p.Plan(nil)
			ticket, err := c.lk.Detach(t.Context(), c.within)
			var argument *holdfast.ArgumentError
			if !errors.As(err, &argument) || argument.Argument != c.argument || ticket != (locker.Ticket{}) {
				t.Errorf("%s: %v", what, err)
			}
			if n := p.Counts(); c.lk.Check() != nil || len(n) != 0 {
				t.Errorf("%s: Check %v, requests %v", what, c.lk.Check(), n)
			}
		}
		var none context.Context
		if _, err := plain.Detach(none, time.Hour); err == nil || plain.Check() != nil {
			t.Errorf("without a context: %v, Check %v", err, plain.Check())
		}
	})
}

// A second Detach, or one after the end, tells how the hold has ended.
func TestDetachOfWhatHasEnded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		detached, released, lost := mustLock(t, locker.NewMutex(p.Sess, "a")), mustLock(t, locker.NewMutex(p.Sess, "b")),
			mustLock(t, locker.NewMutex(p.Sess, "c"))
		ticket := mustDetach(t, detached, time.Hour)
		mustUnlock(t, released)
		srv.Revoke(p.Sess.Lease())
		<-lost.Done()
		for lk, want := range map[*locker.Lock]error{
			detached: holdfast.ErrReleased, released: holdfast.ErrReleased, lost: holdfast.ErrLost,
		} {
			if _, err := lk.Detach(t.Context(), time.Hour); !errors.Is(err, want) {
				t.Errorf("%v: %v, want %v", lk, err, want)
			}
		}
		mustUnlock(t, mustAttach(t, p.Sess, ticket, locker.Options{})) // the loss was none of what was detached
	})
}

// Work in Do may detach: Do has nothing left to release.
func TestDoMayDetach(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		var ticket locker.Ticket
		err := locker.NewMutex(p.Sess, "x").Do(t.Context(), func(ctx context.Context, lk *locker.Lock) (err error) {
			ticket, err = lk.Detach(ctx, time.Hour) // ctx ends by that
			return err
		})
		if err != nil || len(kit.Standing(srv, "x")) != 1 {
			t.Fatalf("Do: %v; in etcd %v", err, kit.Standing(srv, "x"))
		}
		mustUnlock(t, mustAttach(t, p.Sess, ticket, locker.Options{}))
	})
}

// The options are those of the call that attaches.
func TestOptionsOfAttachAreThoseOfALock(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "x").With(locker.Options{Reentrant: true})
		ticket := mustDetach(t, mustLock(t, locker.NewMutex(p.Sess, "x")), time.Hour)
		lk := mustAttach(t, p.Sess, ticket, locker.Options{Owner: "second", Reentrant: true, CancelOnSuspended: true})
		v, _ := layout.DecodeValue(kit.Standing(srv, "x")[0].Value)
		if v.Owner != "second" || v.Detached != (time.Time{}) || v.Held.IsZero() || v.Queued.IsZero() {
			t.Errorf("the entry says %+v", v)
		}
		ctx, cancel := lk.WithContext(t.Context())
		defer cancel()
		inner, err := mu.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, lk)
		if len(kit.Standing(srv, "x")) != 1 || inner.Check() != nil {
			t.Error("the hold has ended with the first of its two handles")
		}
		mustUnlock(t, inner)
		kit.NothingStands(t, srv)
	})
}

// Each error is told before anything is sent, and the ticket stays good.
func TestAttachRefusesBadArguments(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := kit.Start(t, srv), kit.Start(t, srv, func(o *session.Options) { o.Namespace = "other" })
		good := mustDetach(t, mustLock(t, locker.NewMutex(p.Sess, "x")), time.Hour)
		permit := mustDetach(t, mustPermit(t, locker.NewSemaphore(p.Sess, "x", 1), 1), time.Hour)
		p.Plan(nil)
		for what, c := range map[string]struct {
			ticket   locker.Ticket
			sess     *session.Session
			o        locker.Options
			argument string
		}{
			"a zero ticket":      {locker.Ticket{}, p.Sess, locker.Options{}, "ticket"},
			"another kind":       {permit, p.Sess, locker.Options{}, "ticket"},
			"no session":         {good, nil, locker.Options{}, "sess"},
			"another namespace":  {good, other.Sess, locker.Options{}, "ticket"},
			"a bad option":       {good, p.Sess, locker.Options{MaxHold: -1}, "Options.MaxHold"},
			"no session, either": {locker.Ticket{}, nil, locker.Options{}, "ticket"},
		} {
			_, err := locker.Attach(t.Context(), c.sess, c.ticket, c.o)
			var argument *holdfast.ArgumentError
			if !errors.As(err, &argument) || argument.Argument != c.argument {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := locker.AttachRead(t.Context(), p.Sess, good, locker.Options{}); err == nil {
			t.Error("a writer's ticket was attached for reading")
		}
		if _, err := locker.AttachPermit(t.Context(), p.Sess, good, locker.Options{}); err == nil {
			t.Error("a writer's ticket was attached as a permit")
		}
		if n := p.Counts(); n["attach"] != 0 {
			t.Errorf("requests: %v", n)
		}
		var failed *view.AcquireError
		if _, err := locker.Attach(kit.Within(t, 0), p.Sess, good, locker.Options{}); !errors.As(err, &failed) ||
			failed.Name != "x" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a dead context: %v", err)
		}
		mustUnlock(t, mustAttach(t, p.Sess, good, locker.Options{}))
	})
}

// A ticket travels as text. Whatever prints it, prints the lock and no more.
func TestTicketIsTextForTransportAndHidesItselfInLogs(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		lk := mustLock(t, locker.NewMutex(p.Sess, "a/b"))
		ticket := mustDetach(t, lk, time.Hour)
		text, err := ticket.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var logged bytes.Buffer
		for _, h := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
			slog.New(h).Info("detached", "ticket", ticket)
		}
		printed := logged.String() + fmt.Sprintf("%v %+v %#v %s %q %d %x", ticket, ticket, ticket, ticket, ticket, ticket,
			[]locker.Ticket{ticket}) + ticket.String()
		hidden := struct{ t locker.Ticket }{ticket} // fmt calls no method of an unexported field
		printed += fmt.Sprintf("%v %+v %#v", hidden, hidden, hidden)
		nonce := lk.Key()[len(lk.Key())-16:]
		if strings.Contains(printed, nonce) || strings.Contains(printed, string(text)) {
			t.Errorf("it has the ticket, %s:\n%s", text, printed)
		}
		if want := `ticket of lock "a/b", good until 2000-01-01T0`; !strings.HasPrefix(ticket.String(), want) {
			t.Errorf("%v, want %s", ticket, want)
		}
		var read locker.Ticket
		if err := read.UnmarshalText(text); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, mustAttach(t, p.Sess, read, locker.Options{}))
	})
}

func TestMalformedTicketsAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "no ticket", "e30", strings.Repeat("A", 5000), base64.RawURLEncoding.EncodeToString([]byte(`{"v":3}`)),
	} {
		var ticket locker.Ticket
		var argument *holdfast.ArgumentError
		if err := ticket.UnmarshalText([]byte(text)); !errors.As(err, &argument) || argument.Argument != "text" ||
			ticket != (locker.Ticket{}) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if text, err := (locker.Ticket{}).MarshalText(); err == nil || (locker.Ticket{}).String() != "no ticket" {
		t.Errorf("the zero Ticket is %q", text)
	}
}
