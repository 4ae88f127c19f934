package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

type seen struct {
	leader election.Leader
	err    error
}

// observe ranges in the background until ctx ends, and hands on what it is told.
func observe(t testing.TB, ctx context.Context, el *election.Election) <-chan seen {
	t.Helper()
	c := make(chan seen)
	var joined sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	joined.Go(func() {
		defer close(c)
		for leader, err := range el.Observe(ctx) {
			select {
			case c <- seen{leader, err}:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); joined.Wait() })
	return c
}

// expect takes what is told next, and wants it to be this value; "" is nobody.
func expect(t testing.TB, c <-chan seen, value string) election.Leader {
	t.Helper()
	s := await(t, fmt.Sprintf("%q is seen to lead", value), c)
	if s.err != nil || s.leader.Value != value || (s.leader.Token == 0) != (value == "") || value == "" && s.leader != (election.Leader{}) {
		t.Fatalf("saw %+v, %v, want %q", s.leader, s.err, value)
	}
	return s.leader
}

// until skips what is told on the way to this value.
func until(t testing.TB, c <-chan seen, value string) election.Leader {
	t.Helper()
	for {
		s := await(t, fmt.Sprintf("%q is seen to lead", value), c)
		if s.err != nil {
			t.Fatalf("waiting for %q: %v", value, s.err)
		}
		if s.leader.Value == value {
			return s.leader
		}
	}
}

func TestObserveTellsLeadersValuesAndVacanciesInOrder(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a, b := open(t, srv.Client(t), session.Options{}), open(t, srv.Client(t), session.Options{})
	told := observe(t, t.Context(), election.New(open(t, srv.Client(t), session.Options{}), "x"))
	expect(t, told, "")
	first := campaign(t, election.New(a, "x"), "a")
	if l := expect(t, told, "a"); l.Token != first.Token() || l.Key != first.Key() || l.Lease != first.Lease() {
		t.Errorf("saw %+v", l)
	}
	if err := first.Proclaim(deadline(t), "a2"); err != nil {
		t.Fatal(err)
	}
	if l := expect(t, told, "a2"); l.Token != first.Token() {
		t.Errorf("saw %+v", l)
	}
	c := campaignLater(deadline(t), election.New(b, "x"), "b") // who waits is not told of
	srv.WaitForKeys(t, prefix, 2)
	resign(t, first)
	second := won(t, c)
	if l := expect(t, told, "b"); l.Token != second.Token() {
		t.Errorf("saw %+v", l)
	}
	resign(t, second)
	expect(t, told, "")
	// One who begins to observe now is told of now.
	expect(t, observe(t, t.Context(), election.New(a, "x")), "")
}

func TestSlowObserverIsToldTheLatest(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := election.New(open(t, srv.Client(t), session.Options{}), "x")
	term := campaign(t, el, "0")
	n, last := 0, -1
	for leader, err := range el.Observe(deadline(t)) {
		if err != nil {
			t.Fatal(err)
		}
		var value int
		if _, err := fmt.Sscan(leader.Value, &value); err != nil || value < last {
			t.Fatalf("%q after %d", leader.Value, last)
		}
		last = value
		if n++; n == 1 {
			for i := range 200 {
				if err := term.Proclaim(deadline(t), fmt.Sprint(i+1)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if value == 200 {
			break
		}
	}
	if n > 100 { // few, but how few is a matter of scheduling
		t.Errorf("it was told %d times", n)
	}
}

// Upstream issue 18163.
func TestObserveSurvives(t *testing.T) {
	t.Parallel()
	quick := opts{MaxAge: 600 * time.Millisecond}
	start := func(t *testing.T) (*etcdtest.Server, *etcdtest.Link, *election.Term, <-chan seen) {
		t.Parallel()
		srv := etcdtest.Start(t)
		link := srv.Link(t)
		term := campaign(t, election.New(open(t, srv.Client(t), session.Options{TTL: 60 * time.Second}), "x"), "0")
		el := election.New(open(t, link.Client(), session.Options{TTL: 60 * time.Second, Retry: quickAttempts}), "x").With(quick)
		told := observe(t, t.Context(), el)
		expect(t, told, "0")
		return srv, link, term, told
	}
	proclaim := func(t *testing.T, term *election.Term, value string) {
		t.Helper()
		if err := term.Proclaim(deadline(t), value); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a disconnection", func(t *testing.T) {
		_, link, term, told := start(t)
		link.Cut()
		proclaim(t, term, "1")
		link.Heal()
		until(t, told, "1")
		proclaim(t, term, "2")
		until(t, told, "2")
	})
	t.Run("a half-open connection", func(t *testing.T) {
		_, link, term, told := start(t)
		link.BlackHoleReplies()
		proclaim(t, term, "1")
		link.Heal()
		until(t, told, "1")
	})
	t.Run("a watch that is silent", func(t *testing.T) {
		_, link, term, told := start(t)
		link.Stall("Watch")
		proclaim(t, term, "1")
		until(t, told, "1") // by the read that is made now and then
		link.Heal()
		proclaim(t, term, "2")
		until(t, told, "2")
	})
	t.Run("compaction while it is disconnected", func(t *testing.T) {
		srv, link, term, told := start(t)
		link.Cut()
		for i := range 5 {
			proclaim(t, term, fmt.Sprintf("1.%d", i))
		}
		srv.Compact(t)
		link.Heal()
		until(t, told, "1.4")
		proclaim(t, term, "2")
		until(t, told, "2")
	})
	t.Run("a restart of etcd", func(t *testing.T) {
		srv, _, term, told := start(t)
		srv.Stop()
		if err := srv.Restart(); err != nil {
			t.Fatal(err)
		}
		proclaim(t, term, "1")
		until(t, told, "1")
		resign(t, term)
		until(t, told, "")
	})
	t.Run("the loss of its own lease", func(t *testing.T) {
		srv, link, term, _ := start(t)
		sess := open(t, link.Client(), session.Options{TTL: 2 * time.Second})
		told := observe(t, t.Context(), election.New(sess, "x").With(quick))
		expect(t, told, "0")
		old := sess.Lease()
		srv.Revoke(t, old)
		eventually(t, "a new lease follows", func() bool { return sess.Lease() != old })
		proclaim(t, term, "1")
		until(t, told, "1")
	})
}

func TestObserveEndsWithAnErrorAndNeverWithoutOne(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := election.New(open(t, srv.Client(t), session.Options{}), "x")
	last := func(ctx context.Context, el *election.Election, first func()) (leader election.Leader, err error) {
		n := 0
		for leader, err = range el.Observe(ctx) {
			if n++; n == 1 && err == nil {
				first()
			}
		}
		return leader, err
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the reason")
	if l, err := last(ctx, el, func() { cancel(why) }); !errors.Is(err, context.Canceled) || !errors.Is(err, why) || l != (election.Leader{}) {
		t.Errorf("its context ended: %+v, %v", l, err)
	}
	if _, err := last(ctx, el, func() { t.Error("told something") }); !errors.Is(err, context.Canceled) {
		t.Errorf("its context had ended: %v", err)
	}
	sess := open(t, srv.Client(t), session.Options{})
	if _, err := last(t.Context(), election.New(sess, "x"), func() { _ = sess.Close(deadline(t)) }); !errors.Is(err, holdfast.ErrClosed) || errors.Is(err, context.Canceled) {
		t.Errorf("the session was closed: %v", err)
	}
	if _, err := last(t.Context(), election.New(sess, "x"), func() {}); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("the session had been closed: %v", err)
	}
	if _, err := election.New(sess, "x").Leader(deadline(t)); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Leader when the session had been closed: %v", err)
	}
	campaign(t, el, "v")
	if _, err := srv.Client(t).Put(deadline(t), "holdfast/epoch", "junk"); err != nil {
		t.Fatal(err)
	}
	campaign(t, election.NewAt(open(t, srv.Client(t), session.Options{Namespace: "other"}), "holdfast/election/y/@"), "v")
	if _, err := last(t.Context(), election.New(open(t, srv.Client(t), session.Options{}), "y"), func() {}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("what no retry can mend: %v", err)
	}
}

func TestObserveCanBeLeftAtAnyMoment(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := election.New(open(t, srv.Client(t), session.Options{}), "x")
	term := campaign(t, el, "0")
	for range el.Observe(t.Context()) {
		break
	}
	func() {
		defer func() { _ = recover() }()
		for range el.Observe(t.Context()) {
			panic("a bug of the user's")
		}
	}()
	// goleak, in TestMain, says whether both were joined; and the sequence can
	// be ranged over again.
	all := el.Observe(t.Context())
	for range 2 {
		for l := range all {
			if l.Token != term.Token() {
				t.Errorf("saw %+v", l)
			}
			break
		}
	}
}

// The 100 ms trap: a watch that names a revision etcd has reached is served
// every 100 ms only.
func TestObserveWatchesFromNow(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	var mu sync.Mutex
	var from []int64
	link.LoseRequest("Watch", 0, func(request any) bool {
		// The session has a watch of its own.
		if r, ok := request.(*pb.WatchRequest); ok && strings.HasPrefix(string(r.GetCreateRequest().GetKey()), prefix) {
			mu.Lock()
			defer mu.Unlock()
			from = append(from, r.GetCreateRequest().StartRevision)
		}
		return false
	})
	other := election.New(open(t, srv.Client(t), session.Options{}), "x")
	told := observe(t, t.Context(), election.New(open(t, link.Client(), session.Options{}), "x"))
	expect(t, told, "")
	for range 5 {
		term := campaign(t, other, "v")
		expect(t, told, "v")
		resign(t, term)
		expect(t, told, "")
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(from, []int64{0}) {
		t.Errorf("watches from revisions %v, want one from 0", from)
	}
}

// What an observer costs does not depend on how many candidates come and go.
func TestObserveReadsOnlyWhenTheLeaderChanges(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	other := election.New(open(t, srv.Client(t), session.Options{}), "x")
	leader := campaign(t, other, "leader")
	told := observe(t, t.Context(), election.New(open(t, link.Client(), session.Options{TTL: 600 * time.Second}), "x"))
	expect(t, told, "leader")
	before := settled(t, link)
	for range 20 {
		c := open(t, srv.Client(t), session.Options{})
		waiting := campaignLater(soon(t, 50*time.Millisecond), election.New(c, "x"), "v")
		await(t, "it gives up", waiting)
	}
	if err := leader.Proclaim(deadline(t), "proclaimed"); err != nil {
		t.Fatal(err)
	}
	expect(t, told, "proclaimed")
	if sent := link.Count().Since(before); sent.Total() != 0 {
		t.Errorf("20 candidates and a new value cost %v", sent)
	}
	resign(t, leader)
	expect(t, told, "")
	if sent := link.Count().Since(before); sent["Txn"] != 1 || sent.Total() != 1 {
		t.Errorf("a new leader costs %v", sent)
	}
}

// An epoch that was bumped after a leader was elected is not the leader's.
func TestTokenOfALeaderIsThatOfItsTermWhateverTheEpoch(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	bump := func(epoch string) {
		if _, err := cli.Put(deadline(t), "holdfast/epoch", epoch); err != nil {
			t.Fatal(err)
		}
	}
	el := election.New(open(t, srv.Client(t), session.Options{}), "x")
	same := func(when string, term *election.Term) {
		t.Helper()
		if l, err := el.Leader(deadline(t)); err != nil || l.Token != term.Token() {
			t.Errorf("%s: leader's token %v, its term's %v, %v", when, l.Token, term.Token(), err)
		}
	}
	term := campaign(t, el, "v")
	same("no epoch", term)
	bump("1")
	same("elected before there was an epoch", term)
	resign(t, term)
	term = campaign(t, el, "v")
	if term.Token().Epoch() != 1 {
		t.Errorf("epoch %d", term.Token().Epoch())
	}
	same("elected under the epoch", term)
	bump("2")
	same("elected under the epoch before", term)
	o, err := el.Observer(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	bump("3")
	srv.Compact(t)
	if l, err := el.Leader(deadline(t)); err != nil || l.Token != fencing.Token(term.Token().Revision()) {
		t.Errorf("compacted: %v, %v", l.Token, err)
	}
	if v := o.Current(); v.Leader.Token != term.Token() {
		t.Errorf("an observer forgot the token: %v", v.Leader.Token)
	}
}
