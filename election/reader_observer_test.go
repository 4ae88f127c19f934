package election_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/session"
)

func TestObserverAnswersFromMemory(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		o := startObserver(t, s.election())
		if v := o.Current(); v.Leader != (election.Leader{}) || !v.Trusted || v.Err != nil || v.Age != 0 {
			t.Errorf("at first %+v", v)
		}
		term := campaign(t, s.other(t), "v")
		synctest.Wait()
		if v := o.Current(); v.Leader.Token != term.Token() || !v.Trusted {
			t.Errorf("after the election %+v", v)
		}
		if err := term.Proclaim(deadline(t), "v2"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if v := o.Current(); v.Leader.Value != "v2" {
			t.Errorf("after Proclaim %+v", v)
		}
		before := s.link.Count()
		for range 10_000 {
			_ = o.Current()
		}
		if sent := s.link.Count(); !maps.Equal(sent, before) {
			t.Errorf("10,000 calls of Current cost RPCs: %v, before %v", sent, before)
		}
		resign(t, term)
		synctest.Wait()
		if v := o.Current(); v.Leader != (election.Leader{}) {
			t.Errorf("after the resignation %+v", v)
		}
	})
}

func TestObserverSaysWhenItCannotBeTrusted(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		term := campaign(t, s.other(t), "v")
		o := startObserver(t, s.election())
		s.link.BlackHole()
		time.Sleep(10 * time.Second)
		if v := o.Current(); !v.Trusted || v.Age != 10*time.Second || v.Leader.Token != term.Token() {
			t.Errorf("cut off for 10 s: %+v", v)
		}
		time.Sleep(10 * time.Second)
		if v := o.Current(); v.Trusted || v.Age != 20*time.Second || v.Leader.Token != term.Token() || v.Err != nil {
			t.Errorf("cut off for longer than MaxAge: %+v", v)
		}
		s.link.Heal()
		time.Sleep(10 * time.Second)
		if v := o.Current(); !v.Trusted || v.Age > 10*time.Second || v.Leader.Token != term.Token() {
			t.Errorf("reconnected: %+v", v)
		}
		o.Close()
		o.Close()
		if v := o.Current(); v.Trusted || !errors.Is(v.Err, context.Canceled) || v.Leader.Token != term.Token() ||
			!strings.Contains(v.Err.Error(), "the observer was closed") {
			t.Errorf("closed: %+v", v)
		}
		o = startObserver(t, s.election())
		if err := s.sess.Close(deadline(t)); err != nil {
			t.Error(err)
		}
		synctest.Wait() // it ends with the session's context
		if v := o.Current(); v.Trusted || v.Err != holdfast.ErrClosed {
			t.Errorf("session closed: %+v", v)
		}
		if _, err := s.election().Observer(deadline(t)); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("after the session was closed: %v", err)
		}
	})
}

func TestObserverReadsThreeTimesInMaxAge(t *testing.T) {
	t.Parallel()
	for _, maxAge := range []time.Duration{3 * time.Second, 30 * time.Millisecond} { // the second is the shortest
		simulate(t, func(t *testing.T, s *sim) {
			startObserver(t, s.election().With(opts{MaxAge: maxAge}))
			before := s.link.Count()["Txn"]
			time.Sleep(10*maxAge + maxAge/10)
			if n := s.link.Count()["Txn"] - before; n != 30 {
				t.Errorf("MaxAge %v: %d reads in ten times that", maxAge, n)
			}
		})
	}
}

func TestObserverThatGetsNoReplyIsNotStarted(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		s.link.BlackHole()
		start := time.Now()
		if _, err := s.election().Observer(within(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Observer: %v", err)
		}
		if _, err := s.election().Leader(within(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Leader: %v", err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("they took %v", d)
		}
	})
}

// BenchmarkObserverCurrent measures one question to an Observer.
func BenchmarkObserverCurrent(b *testing.B) {
	srv := newServer(b)
	o := startObserver(b, election.New(open(b, srv.Client(b), session.Options{}), "x"))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = o.Current()
		}
	})
}

func TestObserverCurrentDoesNotAllocate(t *testing.T) {
	srv := newServer(t)
	o := startObserver(t, election.New(open(t, srv.Client(t), session.Options{}), "x"))
	if n := testing.AllocsPerRun(1000, func() { _ = o.Current() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The cost of an observation does not depend on the number of candidates.
func TestObserveReadsOnlyWhenTheLeaderChanges(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		leader := campaign(t, s.other(t), "leader")
		link := s.srv.Link()
		el := election.New(open(t, link.Client(), session.Options{TTL: 600 * time.Second}), "x")
		told := observe(t, el.With(opts{MaxAge: time.Hour})) // it also reads each third of that
		expect(t, told, "leader")
		costs := func(what string, want map[string]int, do func()) {
			t.Helper()
			synctest.Wait()
			before := link.Count()
			do()
			synctest.Wait()
			sent := link.Count()
			maps.DeleteFunc(sent, func(method string, n int) bool { return n == before[method] })
			for method := range sent {
				sent[method] -= before[method]
			}
			if !maps.Equal(sent, want) {
				t.Errorf("%s: sent %v, want %v", what, sent, want)
			}
		}
		costs("20 candidates and a new value", map[string]int{}, func() {
			for range 20 {
				waiting := campaignLater(within(t, 50*time.Millisecond), s.other(t), "v")
				if r := await(t, "the candidate gives up", waiting); r.err == nil {
					t.Fatal("a candidate has won")
				}
			}
			if err := leader.Proclaim(deadline(t), "proclaimed"); err != nil {
				t.Fatal(err)
			}
			expect(t, told, "proclaimed")
		})
		costs("a new leader", map[string]int{"Txn": 1}, func() {
			resign(t, leader)
			expect(t, told, "")
		})
	})
}
