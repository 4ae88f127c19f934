package admin_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inBubble runs a test in virtual time, against an etcd in memory.
func inBubble(t *testing.T, f func(t *testing.T, srv *etcdfake.Server, adm *admin.Client)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(nil)
		t.Cleanup(srv.Close)
		f(t, srv, admin.New(srv.Link().Client(), nil))
	})
}

func newSession(t *testing.T, srv *etcdfake.Server, owner string) (*session.Session, *etcdfake.Link) {
	t.Helper()
	link := srv.Link()
	link.Delay(time.Millisecond)
	sess, err := session.New(t.Context(), link.Client(), &session.Options{
		Owner: owner, Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		link.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sess.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return sess, link
}

// queueUp has the sessions ask for the lock one after another; the first holds it. Each waiter gives up with its
// context.
func queueUp(t *testing.T, name string, sessions ...*session.Session) (held *locker.Lock, giveUp []context.CancelFunc) {
	t.Helper()
	held, err := locker.NewMutex(sessions[0], name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sess := range sessions[1:] {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		giveUp = append(giveUp, cancel)
		go func() {
			if lk, err := locker.NewMutex(sess, name).Lock(ctx); err == nil {
				<-ctx.Done()
				_ = lk.Unlock(context.WithoutCancel(ctx))
			}
		}()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	return held, giveUp
}

func TestShowTellsTheHolderThenTheWaitersInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		c, _ := newSession(t, srv, "c")
		began := time.Now()
		lk, _ := queueUp(t, "billing/job-7", a, b, c)
		time.Sleep(3 * time.Second) // the entry says since when it is held
		q, err := adm.Show(t.Context(), admin.Lock, "billing/job-7")
		if err != nil {
			t.Fatal(err)
		}
		var owners []string
		for _, e := range q.Entries {
			owners = append(owners, e.Owner)
			early := e.QueuedAt.Before(began.Truncate(time.Millisecond))
			if e.Foreign || e.TTL <= 0 || e.TTL > session.DefaultTTL || early || e.PID == 0 {
				t.Errorf("entry %+v", e)
			}
		}
		if !slices.Equal(owners, []string{"a", "b", "c"}) || q.Waiting() != 2 {
			t.Errorf("owners %v, %d waiting", owners, q.Waiting())
		}
		h, held := q.Holder()
		if !held || h.Token != lk.Token() || h.Lease != a.Lease() || h.HeldAt.IsZero() || !q.Entries[1].HeldAt.IsZero() {
			t.Errorf("holder %+v, token %v", h, lk.Token())
		}
		if s := h.String(); !strings.Contains(s, `owner "a"`) || !strings.Contains(s, "held since") {
			t.Error(s)
		}
	})
}

func TestShowOfAQueueOfThousandsIsReadInPagesAtOneRevision(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		for i := range 2500 {
			srv.Put(fmt.Sprintf("/locks/x/%04d", (i*1237)%2500), "")
		}
		q, err := adm.ShowAt(t.Context(), admin.Lock, "/locks/x")
		if err != nil || len(q.Entries) != 2500 {
			t.Fatalf("%d entries, %v", len(q.Entries), err)
		}
		if !slices.IsSortedFunc(q.Entries, func(a, b admin.Entry) int { return int(a.Revision - b.Revision) }) {
			t.Error("not in the order of the queue")
		}
		if e := q.Entries[0]; !e.Foreign || e.TTL != 0 || e.Token != fencing.Token(e.Revision) {
			t.Errorf("%+v", e)
		}
	})
}

func TestShowOfAnEmptyQueueIsNoError(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		q, err := adm.Show(t.Context(), admin.Election, "nothing")
		if _, held := q.Holder(); held || err != nil || q.Revision == 0 || q.Waiting() != 0 {
			t.Errorf("%+v, %v", q, err)
		}
	})
}

func TestTokenIsThatOfTheEpochWhenTheEntryQueued(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		lk, _ := queueUp(t, "x", a)
		if _, err := fencing.BumpEpoch(t.Context(), srv.Link().Client(), "", 3, nil); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = locker.NewMutex(b, "x").Lock(t.Context()) }()
		time.Sleep(time.Second)
		q, err := adm.Show(t.Context(), admin.Lock, "x")
		if err != nil {
			t.Fatal(err)
		}
		if q.Entries[0].Token != lk.Token() || q.Entries[1].Token>>48 != 3 {
			t.Errorf("tokens %v and %v, the holder's is %v", q.Entries[0].Token, q.Entries[1].Token, lk.Token())
		}
	})
}

func TestListHasEachNameOnceWithItsHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		for _, name := range []string{"a", "a-b", "a/1", "a/b", "a0", "b"} {
			queueUp(t, name, a, b)
		}
		for i := range 6000 { // two pages of one name
			srv.Put(fmt.Sprintf("holdfast/lock/big/@/%x-AAAAAAAAAAAAAAAA", 0xffff-i), "")
		}
		for prefix, want := range map[string]string{
			// In the order of the keys: "-" and "1" are before "@", "b" is after it.
			"":      "a-b by a +1, a/1 by a +1, a by a +1, a/b by a +1, a0 by a +1, b by a +1, big by  +5999",
			"a":     "a-b by a +1, a/1 by a +1, a by a +1, a/b by a +1, a0 by a +1",
			"a/":    "a/1 by a +1, a/b by a +1",
			"other": "",
		} {
			var got []string
			for s, err := range adm.List(t.Context(), admin.Lock, prefix) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s by %s +%d", s.Name, s.Holder.Owner, s.Waiting))
				if s.Name == "big" && !strings.Contains(s.Holder.Key, "ffff-") {
					t.Errorf("the holder of big is %v, which is not its oldest entry", s.Holder.Key)
				}
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("list %q: %v, want %v", prefix, got, want)
			}
		}
	})
}

func TestSessionsListsThoseThatLive(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		got := make(map[string]clientv3.LeaseID)
		for s, err := range adm.Sessions(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got[s.Owner] = s.Lease
		}
		if len(got) != 2 || got["a"] != a.Lease() || got["b"] != b.Lease() {
			t.Errorf("%v", got)
		}
	})
}

// watch runs a Watch and returns what it told so far as "what owner waiting".
func watch(t *testing.T, events iter.Seq2[admin.Event, error]) (told func() string) {
	t.Helper()
	var got []string
	next := make(chan string, 10_000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev, err := range events {
			if err != nil {
				next <- "error: " + err.Error()
				return
			}
			next <- fmt.Sprintf("%s %s %d", ev.What, ev.Entry.Owner, ev.Waiting)
		}
	}()
	t.Cleanup(func() { <-done })
	return func() string {
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		got = got[:0]
		for len(next) > 0 {
			got = append(got, <-next)
		}
		return strings.Join(got, ", ")
	}
}

func expect(t *testing.T, told func() string, want string) {
	t.Helper()
	if got := told(); got != want {
		t.Errorf("told %q\nwant %q", got, want)
	}
}

func TestWatchTellsQueuedAcquiredReleasedLeftAndLost(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		c, _ := newSession(t, srv, "c")
		d, _ := newSession(t, srv, "d")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lk, giveUp := queueUp(t, "x", a, b)
		told := watch(t, adm.Watch(ctx, admin.Lock, "x"))
		expect(t, told, "queued a 0, queued b 1, acquired a 1")

		_, more := queueUp(t, "y", c) // another name is not told
		_ = more
		for _, sess := range []*session.Session{c, d} {
			go func() { _, _ = locker.NewMutex(sess, "x").Lock(ctx) }()
			time.Sleep(100 * time.Millisecond)
		}
		expect(t, told, "queued c 2, queued d 3")
		if err := lk.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, told, "released a 2, acquired b 2")
		srv.Revoke(c.Lease())
		expect(t, told, "lost c 1, queued c 2")
		giveUp[0]() // b unlocks
		expect(t, told, "released b 1, acquired d 1")
		cancel()
		expect(t, told, "error: context canceled")
	})
}

func TestShowAndWatchTellThatANameStaysTaken(t *testing.T) {
	for _, closed := range []bool{false, true} {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
			a, _ := newSession(t, srv, "a")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			lk, err := locker.NewMutex(a, "x").With(locker.Options{MinHold: time.Minute}).Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			told := watch(t, adm.Watch(ctx, admin.Lock, "x"))
			expect(t, told, "queued a 0, acquired a 0")
			if err := lk.Unlock(ctx); err != nil {
				t.Fatal(err)
			}
			expect(t, told, "taken a 0")
			if closed {
				_ = a.Close(ctx)
			}
			q, err := adm.Show(ctx, admin.Lock, "x")
			if err != nil {
				t.Fatal(err)
			}
			e, held := q.Holder()
			if !held || e.ReleasedAt.Before(e.HeldAt) || e.TakenUntil.Sub(e.ReleasedAt) != time.Minute ||
				e.TTL <= 0 || e.Lease == lk.Lease() || e.Foreign || !strings.Contains(e.String(), "its name taken until") {
				t.Errorf("%+v", e)
			}
			time.Sleep(time.Minute)
			expect(t, told, "released a 0")
			cancel()
			expect(t, told, "error: context canceled")
		})
	}
}

func TestWatchMissesNothingWhileItIsInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		interrupt func(srv *etcdfake.Server, link *etcdfake.Link)
		compact   bool
		want      string
	}{
		"cancelled by etcd": {
			interrupt: func(srv *etcdfake.Server, _ *etcdfake.Link) { srv.CancelWatches(errors.New("no leader")) },
			want:      "released a 1, acquired b 1, queued c 2, lost c 1",
		},
		"cut off": {
			interrupt: func(_ *etcdfake.Server, link *etcdfake.Link) { link.Cut(); time.AfterFunc(10*time.Second, link.Heal) },
			want:      "released a 1, acquired b 1, queued c 2, lost c 1",
		},
		"silent": { // as on a member that hangs
			interrupt: func(_ *etcdfake.Server, link *etcdfake.Link) {
				link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					if c.Request == nil { // an event
						return etcdfake.Fate{Reply: time.Hour}
					}
					return etcdfake.Fate{}
				})
				time.AfterFunc(10*time.Second, func() { link.Plan(nil) })
			},
			want: "released a 1, acquired b 1, queued c 2, lost c 1",
		},
		"cut off across a compaction": {
			interrupt: func(_ *etcdfake.Server, link *etcdfake.Link) { link.Cut(); time.AfterFunc(10*time.Second, link.Heal) },
			compact:   true,
			want:      "gone a 1, acquired b 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				srv := etcdfake.New(nil)
				t.Cleanup(srv.Close)
				link := srv.Link()
				adm := admin.New(link.Client(), nil)
				a, _ := newSession(t, srv, "a")
				b, _ := newSession(t, srv, "b")
				d, _ := newSession(t, srv, "d")
				lk, _ := queueUp(t, "x", a, b, d)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				told := watch(t, adm.Watch(ctx, admin.Lock, "x"))
				expect(t, told, "queued a 0, queued b 1, queued d 2, acquired a 2")
				c.interrupt(srv, link)
				if err := lk.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				revoked(t, srv, "x", "c") // queued and gone before the watch is there again
				if c.compact {
					srv.Compact()
				}
				time.Sleep(35 * time.Second)
				expect(t, told, c.want)
				srv.Revoke(d.Lease())
				expect(t, told, "lost d 0, queued d 1")
				cancel()
				expect(t, told, "error: context canceled")
			})
		})
	}
}

// revoked puts an entry of a client with that owner, and revokes its lease.
func revoked(t *testing.T, srv *etcdfake.Server, lock, owner string) {
	t.Helper()
	cli := srv.Client()
	grant, err := cli.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		fmt.Sprintf("holdfast/session/%x", int64(grant.ID)): "{}",
		fmt.Sprintf("holdfast/lock/%s/@/%x-AAAAAAAAAAAAAAAA", lock, int64(grant.ID)): fmt.Sprintf(
			`{"v":1,"owner":%q,"queued_at":"2026-01-31T12:00:00Z"}`, owner),
	} {
		if _, err := cli.Put(t.Context(), key, value, clientv3.WithLease(grant.ID)); err != nil {
			t.Fatal(err)
		}
	}
	srv.Revoke(grant.ID)
}

func TestBadInputIsATypedErrorBeforeAnythingIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		link := srv.Link()
		good := admin.New(link.Client(), nil)
		var argument *holdfast.ArgumentError
		var name *holdfast.NameError
		ctx := t.Context()
		var none context.Context
		for what, call := range map[string]func() error{
			"no client":    func() error { _, err := admin.New(nil, nil).Show(ctx, admin.Lock, "x"); return err },
			"zero value":   func() error { _, err := new(admin.Client).Show(ctx, admin.Lock, "x"); return err },
			"nil":          func() error { _, err := (*admin.Client)(nil).Show(ctx, admin.Lock, "x"); return err },
			"no context":   func() error { _, err := good.Show(none, admin.Lock, "x"); return err },
			"no kind":      func() error { _, err := good.Show(ctx, "", "x"); return err },
			"empty name":   func() error { _, err := good.Show(ctx, admin.Lock, ""); return err },
			"bad name":     func() error { return first(good.Watch(ctx, admin.Lock, "a//b")) },
			"empty prefix": func() error { return first(good.WatchAt(ctx, admin.Lock, "")) },
			"list's kind":  func() error { return first(good.List(ctx, "x", "")) },
			"bad namespace": func() error {
				return first(admin.New(link.Client(), &admin.Options{Namespace: "/x/"}).Sessions(ctx))
			},
			"long attempt": func() error {
				o := &admin.Options{Retry: backoff.Policy{Attempt: 5 * time.Second}}
				return first(admin.New(link.Client(), o).Sessions(ctx))
			},
			"bad policy": func() error {
				return first(admin.New(link.Client(), &admin.Options{Retry: backoff.Policy{Max: -1}}).Sessions(ctx))
			},
		} {
			if err := call(); !errors.As(err, &argument) && !errors.As(err, &name) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := link.Count(); len(n) != 0 {
			t.Errorf("requests: %v", n)
		}
	})
}

func first[T any](seq iter.Seq2[T, error]) error {
	for _, err := range seq {
		return err
	}
	return nil
}
