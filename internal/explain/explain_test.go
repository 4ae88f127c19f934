package explain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/explain"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { leak.Main(m) }

// trouble is one hold, with all that a fault needs.
type trouble struct {
	t    *testing.T
	srv  *etcdfake.Server
	link *etcdfake.Link
	sess *session.Session
	adm  *admin.Client
	lk   *locker.Lock
}

func (f *trouble) ask(do func(context.Context, holdfast.Kind, string, holdfast.Token, string) error) {
	f.t.Helper()
	if err := do(f.t.Context(), holdfast.KindLock, "job", f.lk.Token(), "deploy"); err != nil {
		f.t.Error(err)
	}
}

// faults are what may end a hold, and how its entry goes then.
var faults = []struct {
	what string
	opts locker.Options
	do   func(f *trouble)
	ends []explain.End
}{
	{"released", locker.Options{}, func(f *trouble) { _ = f.lk.Unlock(f.t.Context()) }, []explain.End{explain.LetGo}},
	{"lease revoked", locker.Options{}, func(f *trouble) {
		f.srv.Revoke(f.sess.Lease())
	}, []explain.End{explain.LeaseEnded}},
	{"entry deleted", locker.Options{}, func(f *trouble) { f.srv.Delete(f.lk.Key()) }, []explain.End{explain.Deleted}},
	{"cut off", locker.Options{}, func(f *trouble) { f.link.BlackHole() }, []explain.End{explain.LeaseEnded}},
	{"cut off for a while", locker.Options{}, func(f *trouble) {
		f.link.BlackHole()
		time.Sleep(14 * time.Second)
		f.link.Heal()
	}, []explain.End{explain.LeaseEnded, explain.GaveUp}},
	{"kicked", locker.Options{}, func(f *trouble) { f.ask(f.adm.Kick) }, []explain.End{explain.LetGo}},
	{"removed", locker.Options{}, func(f *trouble) { f.ask(f.adm.Remove) }, []explain.End{explain.Moved}},
	{"kicked while cut off", locker.Options{}, func(f *trouble) {
		f.link.BlackHole()
		f.ask(f.adm.Kick)
	}, []explain.End{explain.LeaseEnded}},
	{"too long", locker.Options{MaxHold: 10 * time.Second}, func(*trouble) {}, []explain.End{explain.LetGo}},
	{"closed", locker.Options{}, func(f *trouble) { _ = f.sess.Close(f.t.Context()) }, []explain.End{explain.GaveUp}},
}

// A hundred holds end, each by a fault. With the log of the holder the cause is that of its loss, whatever it is;
// without one it is not known. How the entry has gone is told in any case, and that the one who waited holds next.
func TestCauseIsThatOfTheLossOrNotKnown(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(27, 3))
	holds := 100
	if bubble.Race {
		holds = 50
	}
	for i := range holds {
		fault, after := faults[i%len(faults)], time.Duration(random.IntN(5000))*time.Millisecond
		text := random.IntN(2) == 0
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			var log bytes.Buffer
			var handler slog.Handler = slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
			if text {
				handler = slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
			}
			logger := slog.New(handler)
			f := &trouble{t: t, srv: srv, link: srv.Link()}
			f.sess = open(t, f.link, "a", logger)
			f.adm = admin.New(srv.Link().Client(), admin.Options{Owner: "ops", Auditor: audit.Log(logger)})
			mu := locker.NewMutex(f.sess, "job").With(fault.opts)
			var err error
			if f.lk, err = mu.Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			other := open(t, srv.Link(), "b", quiet)
			next := make(chan *locker.Lock, 1)
			go func() {
				lk, _ := locker.NewMutex(other, "job").Lock(t.Context())
				next <- lk
			}()
			time.Sleep(after)
			fault.do(f)
			<-f.lk.Done()
			if kicked(f.lk.Check()) {
				time.Sleep(time.Second)
				_ = f.lk.Unlock(t.Context())
			}
			b := <-next
			f.link.Heal()
			time.Sleep(5 * time.Second)
			if err := b.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			_ = f.sess.Close(t.Context()) // its log is complete

			story, err := explain.Read(t.Context(), srv.Link().Client(), of("job"))
			if err != nil || len(story.Spells) != 2 || !story.All {
				t.Fatalf("%s: %+v, %v", fault.what, story, err)
			}
			first, second := story.Spells[0], story.Spells[1]
			if cause, known := first.Cause(); known {
				t.Errorf("%s: the cause without a log is %v", fault.what, cause)
			}
			lines, err := explain.Lines(&log)
			if err != nil {
				t.Fatal(err)
			}
			story.Add(lines)
			var lost *holdfast.LostError
			isLost := errors.As(f.lk.Check(), &lost)
			cause, known := first.Cause()
			if known != isLost || known && cause != lost.Cause || first.Released() == isLost || len(story.Lines) != 0 {
				t.Errorf("%s: the cause is told as %v, %v, released %v, and it is %v; lines %+v",
					fault.what, cause, known, first.Released(), f.lk.Check(), first.Lines)
			}
			free := story.Free()
			if len(free) != 2 || free[0].To != first.Entry.Revision || free[1] != (explain.Span{From: second.Ended}) {
				t.Errorf("%s: free %v", fault.what, free)
			}
			ok := false
			for _, end := range fault.ends {
				ok = ok || first.End == end
			}
			behindAClaim := first.End == explain.LeaseEnded || first.End == explain.Deleted // it held when that was cleared
			if !ok || first.Entry.Owner != "a" || second.Entry.Owner != "b" || first.Held != first.Entry.Revision ||
				behindAClaim != (second.Held > first.Ended) || second.Held < first.Ended ||
				second.Ended <= second.Held || second.End != explain.LetGo {
				t.Errorf("%s: %+v, %+v", fault.what, first, second)
			}
			asked := strings.HasPrefix(fault.what, "kicked") || fault.what == "removed"
			if asked != (len(first.Asked) > 0) || asked && (first.Asked[0].By != "ops" || first.Asked[0].Reason != "deploy") {
				t.Errorf("%s: asked %+v", fault.what, first.Asked)
			}
		})
	}
}

var quiet = slog.New(slog.DiscardHandler)

func kicked(err error) bool {
	var lost *holdfast.LostError
	return errors.As(err, &lost) && lost.Cause == holdfast.CauseKicked
}

func of(name string) explain.Of {
	return explain.Of{Namespace: "holdfast", Kind: holdfast.KindLock, Name: name}
}

func open(t *testing.T, link *etcdfake.Link, owner string, logger *slog.Logger) *session.Session {
	t.Helper()
	link.Delay(time.Millisecond)
	sess, err := session.New(t.Context(), link.Client(), session.Options{
		Owner: owner, Clock: session.MonotonicClock(), Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sess.Close(context.Background()) })
	return sess
}

// Where etcd has compacted its history the story begins there, and what stood then is told, held since then or earlier.
func TestStoryBeginsWhereHistoryBegins(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess := open(t, srv.Link(), "a", quiet)
		mu := locker.NewMutex(sess, "job")
		for range 3 {
			lk, err := mu.Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = lk.Unlock(t.Context())
		}
		lk, err := mu.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := open(t, srv.Link(), "b", quiet)
		done := make(chan struct{})
		go func() { // joined below
			defer close(done)
			_ = locker.NewMutex(next, "job").Do(t.Context(), func(context.Context, *locker.Lock) error { return nil })
		}()
		time.Sleep(5 * time.Second)
		srv.Compact()
		from := srv.Keys("holdfast/lock/job/")[0].ModRevision
		_ = lk.Unlock(t.Context())
		<-done
		cli := srv.Link().Client()
		story, err := explain.Read(t.Context(), cli, of("job"))
		if err != nil || len(story.Spells) != 2 || story.All || story.From < from {
			t.Fatalf("%+v, %v", story, err)
		}
		if s := story.Spells[1]; s.Earlier || s.Held != story.Spells[0].Ended {
			t.Errorf("it waited at first: %+v", s)
		}
		if s := story.Spells[0]; !s.Earlier || s.Held != story.From || s.End != explain.LetGo || s.Entry.HeldAt.IsZero() {
			t.Errorf("%+v", s)
		}
		early := of("job")
		early.From = 2
		_, err = explain.Read(t.Context(), cli, early)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(story.From)) {
			t.Errorf("from a compacted revision: %v", err)
		}
		early.From = 1 << 40
		if _, err := explain.Read(t.Context(), cli, early); err == nil || !strings.Contains(err.Error(), "future") {
			t.Errorf("from the future: %v", err)
		}
	})
}

// The store is at rest and compacted to the present, so no watch of the past tells when all is told.
func TestStoryOfAStoreAtRestDoesNotWaitForAWrite(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		lk, err := locker.NewMutex(open(t, srv.Link(), "a", quiet), "job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		srv.Compact()
		for name, spells := range map[string]int{"job": 1, "never-was": 0} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			story, err := explain.Read(ctx, srv.Link().Client(), of(name))
			if err != nil || len(story.Spells) != spells || story.All {
				t.Errorf("%s: %+v, %v", name, story, err)
			}
		}
		_ = lk.Unlock(t.Context())
	})
}

// Readers hold together, a writer waits for them, and a lock that is downgraded goes on.
func TestReadersAndDowngrade(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := open(t, srv.Link(), "a", quiet), open(t, srv.Link(), "b", quiet)
		both, err := locker.NewRWMutex(a, "job").LockDowngradable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		read, err := both.Downgrade(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other, err := locker.NewRWMutex(b, "job").RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = read.Unlock(t.Context()), other.Unlock(t.Context())
		story, err := explain.Read(t.Context(), srv.Link().Client(), of("job"))
		if err != nil || len(story.Spells) != 3 {
			t.Fatalf("%+v, %v", story, err)
		}
		ends := make(map[explain.End]int)
		for _, s := range story.Spells {
			ends[s.End]++
			if s.Held == 0 || s.Ended == 0 {
				t.Errorf("%+v", s)
			}
		}
		if ends[explain.Downgraded] != 1 || ends[explain.LetGo] != 2 {
			t.Errorf("%v", ends)
		}
	})
}

// The key of an entry names the session that has queued. How the entry went is told by the session that it was on.
func TestDetachAndAttach(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(srv *etcdfake.Server, b *session.Session, ticket locker.Ticket, lk *locker.Lock)
		want explain.End
	}{
		"its lease is revoked": {func(srv *etcdfake.Server, b *session.Session, _ locker.Ticket, _ *locker.Lock) {
			srv.Revoke(b.Lease())
		}, explain.LeaseEnded},
		"it is released": {func(_ *etcdfake.Server, _ *session.Session, _ locker.Ticket, lk *locker.Lock) {
			_ = lk.Unlock(context.Background())
		}, explain.LetGo},
		"its session is closed": {func(_ *etcdfake.Server, b *session.Session, _ locker.Ticket, _ *locker.Lock) {
			_ = b.Close(context.Background())
		}, explain.GaveUp},
		"it is detached again, and the ticket runs out": {
			func(_ *etcdfake.Server, _ *session.Session, _ locker.Ticket, lk *locker.Lock) {
				_, _ = lk.Detach(context.Background(), time.Second)
				time.Sleep(time.Minute)
			}, explain.RanOut,
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				a, b := open(t, srv.Link(), "a", quiet), open(t, srv.Link(), "b", quiet)
				lk, err := locker.NewMutex(a, "job").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				ticket, err := lk.Detach(t.Context(), time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				if lk, err = locker.Attach(t.Context(), b, ticket, locker.Options{}); err != nil {
					t.Fatal(err)
				}
				c.end(srv, b, ticket, lk)
				story, err := explain.Read(t.Context(), srv.Link().Client(), of("job"))
				if err != nil || len(story.Spells) != 1 {
					t.Fatalf("%+v, %v", story, err)
				}
				s := story.Spells[0]
				if s.End != c.want || s.Held != int64(lk.Token()) || len(s.Moves) < 2 || !s.Moves[0].Detached() ||
					s.Moves[1].Detached() || s.Moves[1].Owner != "b" {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// A candidate that gave up has not led.
func TestElection(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := open(t, srv.Link(), "a", quiet), open(t, srv.Link(), "b", quiet)
		term, err := election.New(a, "job").With(election.Options{Value: "leads"}).Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = election.New(b, "job").With(election.Options{Value: "waits"}).Campaign(ctx)
		time.Sleep(time.Second)
		which := of("job")
		which.Kind = holdfast.KindElection
		story, err := explain.Read(t.Context(), srv.Link().Client(), which)
		if err != nil || len(story.Spells) != 2 {
			t.Fatalf("%+v, %v", story, err)
		}
		first, second := story.Spells[0], story.Spells[1]
		if first.Ended != 0 || first.End != explain.Stands || first.Entry.Value != "leads" || second.Held != 0 ||
			second.End != explain.LetGo {
			t.Errorf("%+v, %+v", first, second)
		}
		_ = term.Resign(t.Context())
	})
}

// The three forms that a log has, and what is none of ours.
func TestLinesOfALog(t *testing.T) {
	t.Parallel()
	log := `2026/11/24 03:19:16 WARN holdfast: lost kind=lock name=x token=415 cause="max hold exceeded" key=k
time=2026-11-24T03:19:16.000Z level=WARN msg="holdfast: kicked" kind=lock name="a b" token=7 by=ops detail="say \"x\""
{"time":"2026-11-24T03:19:16Z","msg":"holdfast: granted","kind":"lock","name":"x","token":"99","key":"k"}
{"msg":"something holdfast: lost", "kind":"lock"}
{"msg":"holdfast: lost
holdfast: session lost: no hold
` + strings.Repeat("x", 3<<20) + `holdfast: lost kind=lock
2026/11/24 03:19:17 INFO holdfast: released kind=lock name=x key=k`
	lines, err := explain.Lines(strings.NewReader(log))
	if err != nil || len(lines) != 4 {
		t.Fatalf("%+v, %v", lines, err)
	}
	if l := lines[0]; l.Event != audit.Lost || l.Cause != "max hold exceeded" || l.Token != 415 ||
		l.Time != "2026/11/24 03:19:16" || l.Key != "k" {
		t.Errorf("%+v", l)
	}
	if l := lines[1]; l.Name != "a b" || l.Detail != `say "x"` || l.By != "ops" || l.Time != "2026-11-24T03:19:16.000Z" {
		t.Errorf("%+v", l)
	}
	if l := lines[2]; l.Event != audit.Granted || l.Token != 99 || l.Time != "2026-11-24T03:19:16Z" {
		t.Errorf("%+v", l)
	}
	if l := lines[3]; l.Event != audit.Released {
		t.Errorf("%+v", l)
	}
}

// A session uses a key again, and the token of a record tells which of the two it is about.
func TestRecordIsOfTheHoldWithItsToken(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		all := slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
		sess := open(t, srv.Link(), "a", slog.New(all))
		mu := locker.NewMutex(sess, "job")
		var last *locker.Lock
		for range 3 {
			var err error
			if last, err = mu.Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if last.Token() > 3 {
				srv.Delete(last.Key())
				<-last.Done()
			}
			_ = last.Unlock(t.Context())
			time.Sleep(time.Second)
		}
		_ = sess.Close(t.Context())
		story, err := explain.Read(t.Context(), srv.Link().Client(), of("job"))
		if err != nil || len(story.Spells) != 3 || story.Spells[0].Entry.Key != story.Spells[1].Entry.Key {
			t.Fatalf("%+v, %v", story, err)
		}
		lines, err := explain.Lines(&log)
		if err != nil {
			t.Fatal(err)
		}
		story.Add(lines)
		for i, s := range story.Spells {
			cause, known := s.Cause()
			if known != (i > 0) || known && cause != holdfast.CauseEntryDeleted || len(s.Lines) != 2 {
				t.Errorf("%d: %v, %v, %+v", i, cause, known, s.Lines)
			}
		}
		if free := story.Free(); len(free) != 4 {
			t.Errorf("free: %v", free)
		}
	})
}
