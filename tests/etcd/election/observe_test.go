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
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

func TestObserveYieldsLeadersValuesAndVacanciesInOrder(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a, b := open(t, srv.Client(t), session.Options{}), open(t, srv.Client(t), session.Options{})
	told := observe(t, newElection(t, srv.Client(t), session.Options{}))
	expect(t, told, "")
	first := campaign(t, election.New(a, "x"), "a")
	if l := expect(t, told, "a"); l.Token != first.Token() || l.Key != first.Key() || l.Lease != first.Lease() {
		t.Errorf("saw %+v", l)
	}
	proclaim(t, first, "a2")
	if l := expect(t, told, "a2"); l.Token != first.Token() {
		t.Errorf("saw %+v", l)
	}
	c := campaignLater(deadline(t), election.New(b, "x"), "b") // a waiting candidate is not reported
	srv.WaitForKeys(t, prefix, 2)
	resign(t, first)
	second := won(t, c)
	if l := expect(t, told, "b"); l.Token != second.Token() {
		t.Errorf("saw %+v", l)
	}
	resign(t, second)
	expect(t, told, "")
	// A new observation begins with the present.
	expect(t, observe(t, election.New(a, "x")), "")
}

func TestSlowConsumerOfObserveGetsTheLatest(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := newElection(t, srv.Client(t), session.Options{})
	term := campaign(t, el, "0")
	n, last := 0, -1
	for leader, err := range el.Watch(deadline(t)) {
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
				proclaim(t, term, fmt.Sprint(i+1))
			}
		}
		if value == 200 {
			break
		}
	}
	if n > 100 { // far fewer, depending on scheduling
		t.Errorf("it got %d of 201 values", n)
	}
}

// etcd issue 18163. An Election and a Reader survive the same.
func TestObserveSurvives(t *testing.T) {
	t.Parallel()
	type fixture struct {
		srv  *etcdtest.Server
		link *etcdtest.Link // of the reader
		term *election.Term
		told <-chan observation
	}
	faults := map[string]func(t *testing.T, f fixture){
		"a disconnection": func(t *testing.T, f fixture) {
			f.link.Cut()
			proclaim(t, f.term, "1")
			f.link.Heal()
			until(t, f.told, "1")
		},
		"a half-open connection": func(t *testing.T, f fixture) {
			f.link.BlackHoleReplies()
			proclaim(t, f.term, "1")
			f.link.Heal()
			until(t, f.told, "1")
		},
		"a silent watch": func(t *testing.T, f fixture) {
			f.link.Stall("Watch")
			proclaim(t, f.term, "1")
			until(t, f.told, "1") // by the next read
			f.link.Heal()
		},
		"compaction while disconnected": func(t *testing.T, f fixture) {
			f.link.Cut()
			for i := range 5 {
				proclaim(t, f.term, fmt.Sprintf("1.%d", i))
			}
			f.srv.Compact(t)
			f.link.Heal()
			until(t, f.told, "1.4")
		},
		"a restart of etcd": func(t *testing.T, f fixture) {
			f.srv.Stop()
			if err := f.srv.Restart(); err != nil {
				t.Fatal(err)
			}
			proclaim(t, f.term, "1")
			until(t, f.told, "1")
		},
	}
	const maxAge = 600 * time.Millisecond
	readers := map[string]func(t *testing.T, cli *clientv3.Client) reader{
		"Election": func(t *testing.T, cli *clientv3.Client) reader {
			el := newElection(t, cli, session.Options{TTL: 60 * time.Second})
			return el.With(election.Options{MaxAge: maxAge})
		},
		"Reader": func(_ *testing.T, cli *clientv3.Client) reader {
			return election.NewReader(cli, "x").With(election.ReaderOptions{MaxAge: maxAge})
		},
	}
	for what, fault := range faults {
		for kind, newReader := range readers {
			t.Run(what+"/"+kind, func(t *testing.T) {
				t.Parallel()
				srv := etcdtest.Start(t)
				link := srv.Link(t)
				term := campaign(t, newElection(t, srv.Client(t), session.Options{TTL: 60 * time.Second}), "0")
				told := observe(t, newReader(t, link.Client()))
				expect(t, told, "0")
				fault(t, fixture{srv, link, term, told})
				proclaim(t, term, "2")
				until(t, told, "2")
				resign(t, term)
				until(t, told, "")
			})
		}
	}
	t.Run("the loss of its own lease", func(t *testing.T) {
		t.Parallel()
		srv := etcdtest.Start(t)
		term := campaign(t, newElection(t, srv.Client(t), session.Options{TTL: 60 * time.Second}), "0")
		sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
		told := observe(t, election.New(sess, "x"))
		expect(t, told, "0")
		old := sess.Lease()
		srv.Revoke(t, old)
		eventually(t, "a new lease follows", func() bool { return sess.Lease() != old })
		proclaim(t, term, "1")
		until(t, told, "1")
	})
}

func TestObserveEndsWithAnError(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := newElection(t, srv.Client(t), session.Options{})
	last := func(ctx context.Context, el *election.Election, first func()) (leader election.Leader, err error) {
		n := 0
		for leader, err = range el.Watch(ctx) {
			if n++; n == 1 && err == nil {
				first()
			}
		}
		return leader, err
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the reason")
	l, err := last(ctx, el, func() { cancel(why) })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || l != (election.Leader{}) {
		t.Errorf("its context ended: %+v, %v", l, err)
	}
	if _, err := last(ctx, el, func() { t.Error("it yielded a leader") }); !errors.Is(err, context.Canceled) {
		t.Errorf("its context had ended: %v", err)
	}
	sess := open(t, srv.Client(t), session.Options{})
	_, err = last(t.Context(), election.New(sess, "x"), func() { _ = sess.Close(deadline(t)) })
	if !errors.Is(err, holdfast.ErrClosed) || errors.Is(err, context.Canceled) {
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
	_, err = last(t.Context(), election.New(open(t, srv.Client(t), session.Options{}), "y"), func() {})
	if err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("an epoch that is not a number: %v", err)
	}
}

func TestObserveCanBeLeftAtAnyMoment(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	el := newElection(t, srv.Client(t), session.Options{})
	term := campaign(t, el, "0")
	for range el.Watch(t.Context()) {
		break
	}
	func() {
		defer func() { _ = recover() }()
		for range el.Watch(t.Context()) {
			panic("a bug of the user's")
		}
	}()
	// goleak checks that both were joined. The sequence can be ranged over again.
	all := el.Watch(t.Context())
	for range 2 {
		for l := range all {
			if l.Token != term.Token() {
				t.Errorf("saw %+v", l)
			}
			break
		}
	}
}

// etcd serves a watch from a past revision only every 100 ms.
func TestObserveWatchesFromNow(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	var mu sync.Mutex
	var from []int64
	link.LoseRequest("Watch", 0, func(request any) bool {
		// The session watches its key, too.
		if r, ok := request.(*pb.WatchRequest); ok && strings.HasPrefix(string(r.GetCreateRequest().GetKey()), prefix) {
			mu.Lock()
			defer mu.Unlock()
			from = append(from, r.GetCreateRequest().StartRevision)
		}
		return false
	})
	other := newElection(t, srv.Client(t), session.Options{})
	told := observe(t, newElection(t, link.Client(), session.Options{}))
	expect(t, told, "")
	for range 5 {
		term := campaign(t, other, "v")
		expect(t, told, "v")
		resign(t, term)
		expect(t, told, "")
	}
	mu.Lock()
	defer mu.Unlock()
	// A busy machine may be late with the creation of a watch, and another one follows.
	if slices.ContainsFunc(from, func(rev int64) bool { return rev != 0 }) || len(from) == 0 {
		t.Errorf("watches from revisions %v, want 0", from)
	}
}
