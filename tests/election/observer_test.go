package election_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

func newObserver(t testing.TB, el *election.Election) *election.Observer {
	t.Helper()
	o, err := el.Observer(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

func TestObserverAnswersFromMemory(t *testing.T) {
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	other := election.New(open(t, srv.Client(t), session.Options{}), "x")
	o := newObserver(t, election.New(open(t, link.Client(), session.Options{TTL: 600 * time.Second}), "x"))
	if v := o.Current(); v.Leader != (election.Leader{}) || !v.Trusted || v.Err != nil || v.Age <= 0 || v.Age > 10*time.Second {
		t.Errorf("at first %+v", v)
	}
	term := campaign(t, other, "v")
	eventually(t, "the leader is known", func() bool { return o.Current().Leader.Token == term.Token() })
	if err := term.Proclaim(deadline(t), "v2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its new value is known", func() bool { return o.Current().Leader.Value == "v2" })
	before := settled(t, link)
	if n := testing.AllocsPerRun(10_000, func() { _ = o.Current() }); n != 0 {
		t.Errorf("%v allocations per Current", n)
	}
	if sent := link.Count().Since(before); sent.Total() != 0 {
		t.Errorf("10,000 questions cost %v", sent)
	}
	resign(t, term)
	eventually(t, "the vacancy is known", func() bool { return o.Current().Leader == election.Leader{} })
}

func TestObserverSaysWhenItCanNoLongerBeTrusted(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	term := campaign(t, election.New(open(t, srv.Client(t), session.Options{TTL: 60 * time.Second}), "x"), "v")
	const maxAge = 300 * time.Millisecond
	sess := open(t, link.Client(), session.Options{TTL: 60 * time.Second, Retry: quickAttempts})
	o := newObserver(t, election.New(sess, "x").With(opts{MaxAge: maxAge}))
	link.BlackHole()
	eventually(t, "trust is gone", func() bool { return !o.Current().Trusted })
	if v := o.Current(); v.Age <= maxAge || v.Leader.Token != term.Token() || v.Err != nil {
		t.Errorf("cut off: %+v", v)
	}
	link.Heal()
	eventually(t, "trust is back", func() bool { return o.Current().Trusted })
	if v := o.Current(); v.Age > maxAge || v.Leader.Token != term.Token() {
		t.Errorf("reconnected: %+v", v)
	}
	o.Close()
	o.Close()
	if v := o.Current(); v.Trusted || !errors.Is(v.Err, context.Canceled) || v.Leader.Token != term.Token() {
		t.Errorf("closed: %+v", v)
	}
	o = newObserver(t, election.New(sess, "x"))
	if err := sess.Close(deadline(t)); err != nil {
		t.Error(err)
	}
	if v := o.Current(); v.Trusted || v.Err != holdfast.ErrClosed {
		t.Errorf("session closed: %+v", v)
	}
	if _, err := election.New(sess, "x").Observer(deadline(t)); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("after the session was closed: %v", err)
	}
}

func TestObserverThatLearnsNothingIsNone(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 60 * time.Second, Retry: quickAttempts, CloseTimeout: 50 * time.Millisecond})
	el := election.New(sess, "x")
	link.BlackHole()
	if _, err := el.Observer(soon(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Observer: %v", err)
	}
	if _, err := el.Leader(soon(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Leader: %v", err)
	}
}

// ask is one probe.
func ask(t testing.TB, h http.Handler) (status int, answer map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%q: %v", w.Body, err)
	}
	if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", w.Header())
	}
	return w.Code, answer
}

func TestLeaderHandlerSaysWhetherThisProcessLeadsAndWhoDoes(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a := election.New(open(t, srv.Client(t), session.Options{TTL: 2 * time.Second}), "x")
	b := election.New(open(t, srv.Client(t), session.Options{}), "x")
	here := newObserver(t, a)
	check := func(status int, value any, reason any) {
		t.Helper()
		eventually(t, "the handler knows", func() bool {
			got, answer := ask(t, here.LeaderHandler())
			current, _ := answer["current"].(map[string]any)
			return got == status && current["value"] == value && answer["reason"] == reason && answer["leader"] == (status == 200)
		})
	}
	check(503, nil, "nobody leads")
	term := campaign(t, a, "a <\"\xff")
	check(200, "a <\"\ufffd", nil)
	resign(t, term)
	term = campaign(t, b, "b")
	check(503, "b", "another candidate leads")
	if _, answer := ask(t, here.LeaderHandler()); answer["current"].(map[string]any)["token"] != term.Token().String() {
		t.Errorf("answer %v", answer)
	}
	resign(t, term)
	term = campaign(t, a, "a")
	check(200, "a", nil)
	srv.Revoke(t, term.Lease())
	check(503, nil, "nobody leads")

	w := httptest.NewRecorder()
	here.LeaderHandler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// A leader that cannot prove its leadership turns unhealthy; how soon is a
// matter of tolerance.
func TestLeaderThatCannotProveItselfTurnsUnhealthy(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 3 * time.Second})
	strict := election.New(sess, "x")
	lenient := strict.With(opts{HealthTolerance: 10 * time.Second})
	strictly, leniently := newObserver(t, strict), newObserver(t, lenient)
	term := campaign(t, strict, "v")
	handlers := map[string]http.Handler{
		"leader": strictly.LeaderHandler(), "leader, tolerated": leniently.LeaderHandler(),
		"health": strict.HealthHandler(), "health, tolerated": lenient.HealthHandler(),
	}
	check := func(when string, want map[string]int) {
		t.Helper()
		for name, h := range handlers {
			if got, answer := ask(t, h); got != want[name] {
				t.Errorf("%s: %s answers %d %v, want %d", when, name, got, answer, want[name])
			}
		}
	}
	check("connected", map[string]int{"leader": 200, "leader, tolerated": 200, "health": 200, "health, tolerated": 200})
	link.BlackHole()
	eventually(t, "it is suspended", func() bool { return errors.Is(term.Check(), holdfast.ErrSuspended) })
	check("suspended", map[string]int{"leader": 503, "leader, tolerated": 200, "health": 503, "health, tolerated": 200})
	<-term.Done()
	// A lost term leads no more, whatever is tolerated.
	check("lost", map[string]int{"leader": 503, "leader, tolerated": 503, "health": 503, "health, tolerated": 200})
	link.Heal()
	eventually(t, "the session is back", func() bool { return sess.Check() == nil })
	check("a new lease", map[string]int{"leader": 503, "leader, tolerated": 503, "health": 200, "health, tolerated": 200})
	if err := sess.Close(deadline(t)); err != nil {
		t.Error(err)
	}
	check("closed", map[string]int{"leader": 503, "leader, tolerated": 503, "health": 503, "health, tolerated": 503})
	if got, _ := ask(t, strict.With(opts{HealthTolerance: -1}).HealthHandler()); got != 503 {
		t.Errorf("with options that cannot be used: %d", got)
	}
}

func TestFunctionThatOutlivesItsTermTurnsTheProcessUnhealthy(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
	el := election.New(sess, "x").With(opts{DrainTimeout: 20 * time.Millisecond})
	lenient := el.With(opts{HealthTolerance: 100 * time.Millisecond})
	release, returned := make(chan struct{}), make(chan struct{})
	err := el.RunWhileLeader(deadline(t), "v", func(_ context.Context, term *election.Term) error {
		defer close(returned)
		if got, answer := ask(t, lenient.HealthHandler()); got != 200 {
			t.Errorf("leading: %d %v", got, answer)
		}
		srv.Revoke(t, term.Lease())
		<-release
		return nil
	})
	if !errors.Is(err, election.ErrNotDrained) {
		t.Error(err)
	}
	eventually(t, "the session is back", func() bool { return sess.Check() == nil })
	if got, answer := ask(t, el.HealthHandler()); got != 503 {
		t.Errorf("without tolerance: %d %v", got, answer)
	}
	eventually(t, "tolerance is used up", func() bool { got, _ := ask(t, lenient.HealthHandler()); return got == 503 })
	if _, answer := ask(t, lenient.HealthHandler()); answer["session"] != "connected" || answer["outlived_ms"] == nil || answer["reason"] == nil {
		t.Errorf("answer %v", answer)
	}
	close(release)
	<-returned
	eventually(t, "it is healthy again", func() bool { got, _ := ask(t, el.HealthHandler()); return got == 200 })
}
