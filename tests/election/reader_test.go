package election_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// read ranges in the background until the test ends, and hands on what it is told.
func read(t testing.TB, r *election.Reader) <-chan seen {
	t.Helper()
	c := make(chan seen)
	var joined sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	joined.Go(func() {
		defer close(c)
		for leader, err := range r.Observe(ctx) {
			select {
			case c <- seen{leader, err}:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); joined.Wait() })
	return c
}

// A process that only looks on has no lease, and writes nothing.
func TestReaderTellsWhoLeadsWithoutASession(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	r := election.NewReader(link.Client(), "x", nil)
	if _, err := r.Leader(deadline(t)); !errors.Is(err, election.ErrNoLeader) {
		t.Errorf("nobody leads: %v", err)
	}
	told := read(t, r)
	expect(t, told, "")
	o, err := r.Observer(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	term := campaign(t, election.New(open(t, srv.Client(t), session.Options{}), "x"), "v")
	expect(t, told, "v")
	if l, err := r.Leader(deadline(t)); err != nil || l.Token != term.Token() || l.Key != term.Key() {
		t.Errorf("%+v, %v", l, err)
	}
	eventually(t, "the observer knows", func() bool { v := o.Current(); return v.Leader.Token == term.Token() && v.Trusted })
	if status, answer := ask(t, o.LeaderHandler()); status != 503 || answer["reason"] != "this process is no candidate" ||
		answer["current"].(map[string]any)["value"] != "v" {
		t.Errorf("%d %v", status, answer)
	}
	if sent := link.Count(); sent["LeaseGrant"]+sent["LeaseKeepAlive"]+sent["Put"] != 0 {
		t.Errorf("sent %v", sent)
	}
	resign(t, term)
	expect(t, told, "")
	o.Close()
	if v := o.Current(); v.Trusted || !errors.Is(v.Err, context.Canceled) {
		t.Errorf("closed: %+v", v)
	}
}

func TestReaderFindsOtherNamespacesAndPrefixes(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{Namespace: "other"})
	campaign(t, election.New(sess, "x"), "named")
	campaign(t, election.NewAt(sess, "/legacy/x"), "at a prefix")
	cli := srv.Client(t)
	for value, r := range map[string]*election.Reader{
		"named":       election.NewReader(cli, "x", &election.ReaderOptions{Namespace: "other"}),
		"at a prefix": election.NewReaderAt(cli, "/legacy/x", nil),
	} {
		if l, err := r.Leader(deadline(t)); err != nil || l.Value != value {
			t.Errorf("%q: %+v, %v", value, l, err)
		}
	}
	if _, err := election.NewReader(cli, "x", nil).Leader(deadline(t)); !errors.Is(err, election.ErrNoLeader) {
		t.Errorf("in the default namespace: %v", err)
	}
}

func TestReaderThatCannotBeUsedSaysWhyBeforeItSends(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	cli := link.Client()
	argument := func(err error) bool { var e *holdfast.ArgumentError; return errors.As(err, &e) }
	name := func(err error) bool { var e *holdfast.NameError; return errors.As(err, &e) }
	for what, tc := range map[string]struct {
		r    *election.Reader
		want func(error) bool
	}{
		"the zero value":     {&election.Reader{}, argument},
		"no client":          {election.NewReader(nil, "x", nil), argument},
		"a hollow client":    {election.NewReader(&clientv3.Client{}, "x", nil), argument},
		"no name":            {election.NewReader(cli, "", nil), name},
		"a bad name":         {election.NewReader(cli, "a//b", nil), name},
		"no prefix":          {election.NewReaderAt(cli, "", nil), name},
		"a bad namespace":    {election.NewReader(cli, "x", &election.ReaderOptions{Namespace: "a/b"}), name},
		"a short MaxAge":     {election.NewReader(cli, "x", &election.ReaderOptions{MaxAge: time.Millisecond}), argument},
		"a bad policy":       {election.NewReader(cli, "x", &election.ReaderOptions{Retry: backoff.Policy{Multiplier: -1}}), argument},
		"too long a request": {election.NewReader(cli, "x", &election.ReaderOptions{Retry: backoff.Policy{Attempt: 5 * time.Second}}), argument},
	} {
		if _, err := tc.r.Leader(deadline(t)); !tc.want(err) {
			t.Errorf("%s: Leader: %v", what, err)
		}
		if _, err := tc.r.Observer(deadline(t)); !tc.want(err) {
			t.Errorf("%s: Observer: %v", what, err)
		}
		n := 0
		for _, err := range tc.r.Observe(deadline(t)) {
			if n++; !tc.want(err) {
				t.Errorf("%s: Observe: %v", what, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: Observe told %d times", what, n)
		}
	}
	if sent := link.Count(); sent.Total() != 0 {
		t.Errorf("sent %v", sent)
	}
	var none context.Context // nil, as by mistake
	r := election.NewReader(cli, "x", nil)
	if _, err := r.Leader(none); !argument(err) {
		t.Errorf("Leader without a context: %v", err)
	}
	if _, err := r.Observer(none); !argument(err) {
		t.Errorf("Observer without a context: %v", err)
	}
	for _, err := range r.Observe(none) {
		if !argument(err) {
			t.Errorf("Observe without a context: %v", err)
		}
	}
}

func TestReaderSurvivesWhatHappensToItsWatch(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (*etcdtest.Server, *etcdtest.Link, *election.Term, <-chan seen) {
		t.Parallel()
		srv := etcdtest.Start(t)
		link := srv.Link(t)
		term := campaign(t, election.New(open(t, srv.Client(t), session.Options{TTL: 60 * time.Second}), "x"), "0")
		told := read(t, election.NewReader(link.Client(), "x", &election.ReaderOptions{MaxAge: 600 * time.Millisecond, Retry: quickAttempts}))
		expect(t, told, "0")
		return srv, link, term, told
	}
	proclaim := func(t *testing.T, term *election.Term, value string) {
		t.Helper()
		if err := term.Proclaim(deadline(t), value); err != nil {
			t.Fatal(err)
		}
	}
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
	t.Run("a watch that is silent", func(t *testing.T) {
		_, link, term, told := start(t)
		link.Stall("Watch")
		proclaim(t, term, "1")
		until(t, told, "1") // by the read that is made now and then
		link.Heal()
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
	t.Run("a restart of etcd", func(t *testing.T) {
		srv, _, term, told := start(t)
		srv.Stop()
		if err := srv.Restart(); err != nil {
			t.Fatal(err)
		}
		proclaim(t, term, "1")
		until(t, told, "1")
	})
}

// The client is the caller's. Closed under an observer, it is the end of that.
func TestReaderWhoseClientIsClosedEndsWithAnError(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	r := election.NewReader(cli, "x", nil)
	o, err := r.Observer(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	told := read(t, r)
	expect(t, told, "")
	if err := cli.Close(); err != nil {
		t.Fatal(err)
	}
	if s := await(t, "Observe ends", told); !errors.Is(s.err, holdfast.ErrClientClosed) {
		t.Errorf("told %+v, %v", s.leader, s.err)
	}
	eventually(t, "the observer ends", func() bool { return o.Current().Err != nil })
	if v := o.Current(); v.Trusted || !errors.Is(v.Err, holdfast.ErrClientClosed) {
		t.Errorf("%+v", v)
	}
	o.Close()
	if _, err := r.Leader(soon(t, 10*time.Second)); !errors.Is(err, holdfast.ErrClientClosed) {
		t.Errorf("Leader: %v", err)
	}
}
