package member_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/session"
)

// watch sends what Watch tells, each group as one text. The channel is closed at the end of the range, after its error.
func watch(ctx context.Context, r *member.Reader) <-chan string {
	told := make(chan string, 1000)
	go func() { // ends with ctx
		defer close(told)
		for g, err := range r.Watch(ctx) {
			if err != nil {
				told <- err.Error()
				return
			}
			told <- strings.Join(describe(g), " ")
		}
	}()
	return told
}

func TestWatchTellsEachChange(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		p := kit.Start(t, srv)
		r := member.NewReader(srv.Client(t), "workers")
		told := watch(ctx, r)
		next := func(want string) {
			t.Helper()
			if got := <-told; got != want {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		next("")
		a := join(t, p, member.Options{Name: "a", Value: "1"})
		next("a=1")
		b := join(t, p, member.Options{Name: "b"})
		next("a=1 b=")
		if err := errors.Join(a.Update(ctx, "2"), b.Retire(ctx)); err != nil {
			t.Error(err)
		}
		next("a=2 b=")
		next("a=2 b=, retiring")
		if err := b.Leave(ctx); err != nil {
			t.Error(err)
		}
		next("a=2")
		time.Sleep(time.Hour) // the regular reads tell nothing
		srv.Revoke(p.Sess.Lease())
		next("")
		next("a=2")
		for g, err := range r.Watch(ctx) { // and no more after a break
			if expect(t, "watched anew", describe(g), "a=2"); err != nil {
				t.Error(err)
			}
			break
		}
		cancel()
		next(`watch group "workers": context canceled`)
		if _, more := <-told; more {
			t.Error("told more after the error")
		}
	})
}

// All members compute the same from what they read, so each reads the same: in one order, whatever that of a map is.
func TestGroupIsReadInOneOrder(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		at := layout.Members("holdfast", "workers")
		put := func(key string, value string, err error) {
			if err != nil {
				t.Fatal(err)
			}
			srv.Put(key, value)
		}
		const n = 12
		now := time.Now()
		for i := range n {
			name := fmt.Sprintf("m%02d", i)
			steer, err := layout.Steer{Member: name, By: "op", At: now}.Encode()
			put(layout.PinKey(at, i), steer, err)
			put(layout.DrainedKey(at, name), steer, err)
			absent, err := layout.Member{Name: name, Reserved: true, Joined: now}.Encode()
			put(at.ReservationKey(name), absent, err)
			there, err := layout.Member{Name: "is-" + name, Joined: now}.Encode()
			put(at.Entries+name, there, err)
		}
		r := member.NewReader(srv.Client(t), "workers")
		for range 5 {
			g, err := r.Members(t.Context())
			if err != nil || len(g.Members) != n || len(g.Absent) != n || len(g.Drained) != n || len(g.Pins) != n {
				t.Fatalf("%+v, %v", g, err)
			}
			for i := range n {
				name := fmt.Sprintf("m%02d", i)
				if g.Members[i].Name != "is-"+name || g.Absent[i].Name != name || g.Drained[i].Member != name ||
					g.Pins[i].Shard != i {
					t.Errorf("at %d: %s, %s, %s, %d", i, g.Members[i].Name, g.Absent[i].Name, g.Drained[i].Member, g.Pins[i].Shard)
				}
			}
		}
	})
}

// What changes while no watch stands is found by the read after the next one.
func TestWatchTellsAFreshListingAfterALostStream(t *testing.T) {
	for name, lose := range map[string]func(srv *etcdfake.Server, link *etcdfake.Link){
		"the watch ends": func(srv *etcdfake.Server, _ *etcdfake.Link) { srv.CancelWatches(errors.New("gone")) },
		"compacted": func(srv *etcdfake.Server, link *etcdfake.Link) {
			link.Cut()
			srv.Put("other", "")
			srv.Compact()
		},
		"silent": func(_ *etcdfake.Server, link *etcdfake.Link) {
			link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
				if c.Request == nil { // an event
					f.Reply = time.Hour
				}
				return f
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ctx, cancel := context.WithCancel(t.Context())
				p, link := kit.Start(t, srv), srv.Link()
				told := watch(ctx, member.NewReader(link.Client(), "workers"))
				a := join(t, p, member.Options{Name: "a"})
				for <-told != "a=" {
				}
				lose(srv, link)
				join(t, p, member.Options{Name: "b"})
				if err := a.Leave(ctx); err != nil {
					t.Error(err)
				}
				link.Heal()
				began := time.Now()
				for <-told != "b=" {
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("told after %v", took)
				}
				cancel()
				for range told {
				}
			})
		})
	}
}

// The group changes between the creation of the watch and the read that follows; the events of that come later, one by
// one. They tell what the read has shown already, and undo nothing.
func TestEventsOlderThanTheReadChangeNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		p, link := kit.Start(t, srv), srv.Link()
		m := join(t, p, member.Options{Name: "a", Value: "0"})
		created := false
		link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			switch c.Request.(type) {
			case *pb.RangeRequest:
				f.Request = 3 * time.Second
			case nil: // that the watch is created; then an event
				if created {
					f.Reply = 20 * time.Second
				}
				created = true
			}
			return f
		})
		told := watch(ctx, member.NewReader(link.Client(), "workers"))
		for _, value := range []string{"1", "2", "3"} {
			time.Sleep(time.Second / 2)
			if err := m.Update(ctx, value); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
		cancel()
		for now := range told {
			if now != "a=3" && now != `watch group "workers": context canceled` {
				t.Errorf("told %q", now)
			}
		}
	})
}

func TestObserverSaysHowOldTheGroupMayBe(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, link := kit.Start(t, srv), srv.Link()
		a := join(t, p, member.Options{Name: "a", Value: "1"})
		const maxAge = 3 * time.Second
		r := member.NewReader(link.Client(), "workers").With(member.ReaderOptions{MaxAge: maxAge})
		o, err := r.Observer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		current := func(what, want string, trusted bool) {
			t.Helper()
			synctest.Wait()
			s := o.Current()
			got := strings.Join(describe(s.Group), " ")
			if got != want || s.Trusted != trusted || s.Trusted != (s.Age <= maxAge) {
				t.Errorf("%s: %q, trusted %v, age %v", what, got, s.Trusted, s.Age)
			}
		}
		current("at first", "a=1", true)
		if err := a.Update(t.Context(), "2"); err != nil {
			t.Error(err)
		}
		current("updated", "a=2", true)
		time.Sleep(time.Hour)
		current("an hour later", "a=2", true)
		link.Cut()
		time.Sleep(maxAge + time.Second)
		current("cut off", "a=2", false)
		link.Heal()
		time.Sleep(maxAge)
		current("healed", "a=2", true)
		if n := testing.AllocsPerRun(100, func() { o.Current() }); n > 0 {
			t.Errorf("Current allocates %v times", n)
		}
		o.Close()
		if s := o.Current(); s.Trusted || !errors.Is(s.Err, context.Canceled) || len(s.Members) != 1 {
			t.Errorf("closed: %+v", s)
		}
	})
}

// The reader's own clock says how old it is.
func TestObserverGoesByItsClock(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var ahead atomic.Int64
		began := time.Now()
		clock := func() time.Duration { return time.Since(began) + time.Duration(ahead.Load()) }
		r := member.NewReader(srv.Client(t), "workers").With(member.ReaderOptions{Clock: clock})
		o, err := r.Observer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		ahead.Store(int64(24 * time.Hour)) // the machine has slept
		if s := o.Current(); s.Trusted || s.Age < 24*time.Hour {
			t.Errorf("trusted %v, age %v", s.Trusted, s.Age)
		}
	})
}

// Most of it is the question for the time: the system's clock, which counts sleep, is a system call.
func BenchmarkObserverCurrent(b *testing.B) {
	srv := etcdfake.New(etcdfake.Options{})
	defer srv.Close()
	cli := srv.Client(b)
	sess, err := session.New(b.Context(), cli, session.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := member.Join(b.Context(), sess, "workers", member.Options{Name: "a", Value: "1"}); err != nil {
		b.Fatal(err)
	}
	for name, clock := range map[string]func() time.Duration{"system": nil, "monotonic": session.MonotonicClock()} {
		b.Run("clock="+name, func(b *testing.B) {
			r := member.NewReader(cli, "workers").With(member.ReaderOptions{Clock: clock})
			o, err := r.Observer(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer o.Close()
			b.ReportAllocs()
			for b.Loop() {
				if now := o.Current(); now.Err != nil || len(now.Members) != 1 {
					b.Fatalf("%+v", now)
				}
			}
		})
	}
	if err := sess.Close(context.Background()); err != nil {
		b.Error(err)
	}
}

func TestReaderEndsWithItsClient(t *testing.T) {
	for range 50 { // its watch may end first, or not
		readerEndsWithItsClient(t)
	}
}

func readerEndsWithItsClient(t *testing.T) {
	t.Helper()
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		cli := srv.Link().Client()
		r := member.NewReader(cli, "workers")
		o, err := r.Observer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told := watch(t.Context(), r)
		<-told
		_ = cli.Close()
		want := holdfast.ErrClientClosed.Error()
		if got := <-told; !strings.HasSuffix(got, want) {
			t.Errorf("Watch: %s", got)
		}
		synctest.Wait()
		if s := o.Current(); s.Trusted || !errors.Is(s.Err, holdfast.ErrClientClosed) {
			t.Errorf("Observer: %+v", s)
		}
		o.Close()
		if _, err := r.Members(t.Context()); !errors.Is(err, holdfast.ErrClientClosed) {
			t.Errorf("Members: %v", err)
		}
		if _, err := r.Observer(t.Context()); !errors.Is(err, holdfast.ErrClientClosed) {
			t.Errorf("another Observer: %v", err)
		}
	})
}

func TestReaderSaysOnceThatEtcdDoesNotAnswer(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		link.Cut()
		_, err := member.NewReader(link.Client(), "workers").Members(kit.Within(t, time.Minute))
		if !errors.Is(err, context.DeadlineExceeded) || strings.Count(err.Error(), "last error") != 1 {
			t.Errorf("%v", err)
		}
	})
}

func TestReaderReadsAnotherNamespace(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv, func(o *session.Options) { o.Namespace = "other" })
		join(t, p, member.Options{Name: "a"})
		expect(t, "the default namespace", group(t, srv))
		r := member.NewReader(srv.Client(t), "workers").With(member.ReaderOptions{Namespace: "other"})
		g, err := r.Members(t.Context())
		if err != nil || r.Group() != "workers" {
			t.Error(err)
		}
		expect(t, "the other one", describe(g), "a=")
	})
}

func TestReaderRefusesBadInputBeforeAnyRequest(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		with := func(o member.ReaderOptions) *member.Reader { return member.NewReader(cli, "x").With(o) }
		for name, r := range map[string]*member.Reader{
			"the zero value":  {},
			"no client":       member.NewReader(nil, "x"),
			"a zero client":   member.NewReader(&clientv3.Client{}, "x"),
			"no name":         member.NewReader(cli, ""),
			"a bad name":      member.NewReader(cli, "a//b"),
			"a bad namespace": with(member.ReaderOptions{Namespace: "a/b"}),
			"a short MaxAge":  with(member.ReaderOptions{MaxAge: time.Millisecond}),
			"a bad policy":    with(member.ReaderOptions{Retry: backoff.Policy{Initial: -1}}),
		} {
			_, list := r.Members(t.Context())
			_, observe := r.Observer(t.Context())
			var watched error
			for _, watched = range r.Watch(t.Context()) {
			}
			for _, err := range []error{list, observe, watched} {
				var argument *holdfast.ArgumentError
				var bad *holdfast.NameError
				if !errors.As(err, &argument) && !errors.As(err, &bad) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		var noContext context.Context
		var argument *holdfast.ArgumentError
		if _, err := member.NewReader(cli, "x").Members(noContext); !errors.As(err, &argument) || argument.Argument != "ctx" {
			t.Errorf("no context: %v", err)
		}
		if sent := link.Count(); len(sent) != 0 {
			t.Errorf("sent %v", sent)
		}
	})
}
