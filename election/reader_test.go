package election_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/session"
)

func TestReaderReadsOtherNamespacesAndPrefixes(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	sess := open(t, srv.Client(t), session.Options{Namespace: "other"})
	campaign(t, election.New(sess, "x"), "named")
	campaign(t, election.NewAt(sess, "/legacy/x"), "at a prefix")
	cli := srv.Client(t)
	for value, r := range map[string]*election.Reader{
		"named":       election.NewReader(cli, "x").With(election.ReaderOptions{Namespace: "other"}),
		"at a prefix": election.NewReaderAt(cli, "/legacy/x"),
	} {
		if l, err := r.Leader(deadline(t)); err != nil || l.Value != value {
			t.Errorf("%q: %+v, %v", value, l, err)
		}
	}
	if _, err := election.NewReader(cli, "x").Leader(deadline(t)); !errors.Is(err, election.ErrNoLeader) {
		t.Errorf("in the default namespace: %v", err)
	}
}

func TestReaderRefusesBadInputBeforeAnyRPC(t *testing.T) {
	t.Parallel()
	link := newServer(t).Link()
	cli := link.Client()
	isArgument := func(err error) bool { var e *holdfast.ArgumentError; return errors.As(err, &e) }
	isName := func(err error) bool { var e *holdfast.NameError; return errors.As(err, &e) }
	with := func(o election.ReaderOptions) *election.Reader { return election.NewReader(cli, "x").With(o) }
	for what, tc := range map[string]struct {
		r    *election.Reader
		want func(error) bool
	}{
		"the zero value":  {&election.Reader{}, isArgument},
		"no client":       {election.NewReader(nil, "x"), isArgument},
		"a zero client":   {election.NewReader(&clientv3.Client{}, "x"), isArgument},
		"no name":         {election.NewReader(cli, ""), isName},
		"a bad name":      {election.NewReader(cli, "a//b"), isName},
		"no prefix":       {election.NewReaderAt(cli, ""), isName},
		"a bad namespace": {with(election.ReaderOptions{Namespace: "a/b"}), isName},
		"a short MaxAge":  {with(election.ReaderOptions{MaxAge: time.Millisecond}), isArgument},
		"a bad policy":    {with(election.ReaderOptions{Retry: backoff.Policy{Initial: -1}}), isArgument},
	} {
		if _, err := tc.r.Leader(deadline(t)); !tc.want(err) {
			t.Errorf("%s: Leader: %v", what, err)
		}
		if _, err := tc.r.Observer(deadline(t)); !tc.want(err) {
			t.Errorf("%s: Observer: %v", what, err)
		}
		n := 0
		for _, err := range tc.r.Watch(deadline(t)) {
			if n++; !tc.want(err) {
				t.Errorf("%s: Watch: %v", what, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: Watch yielded %d pairs", what, n)
		}
	}
	if sent := link.Count(); len(sent) != 0 {
		t.Errorf("RPCs were sent: %v", sent)
	}
	var none context.Context // nil, as by mistake
	r := election.NewReader(cli, "x")
	if _, err := r.Leader(none); !isArgument(err) {
		t.Errorf("Leader without a context: %v", err)
	}
	if _, err := r.Observer(none); !isArgument(err) {
		t.Errorf("Observer without a context: %v", err)
	}
	for _, err := range r.Watch(none) {
		if !isArgument(err) {
			t.Errorf("Watch without a context: %v", err)
		}
	}
}

func TestNothingFollowsLeadersAfterTheRangeHasEnded(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		link := s.srv.Link()
		defer link.Close()
		r := election.NewReader(link.Client(), "x").With(election.ReaderOptions{
			Clock: session.MonotonicClock(), MaxAge: 30 * time.Millisecond,
		})
		for _, err := range r.Watch(deadline(t)) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		synctest.Wait()
		before := link.Count()
		time.Sleep(time.Minute)
		if sent := link.Count(); !maps.Equal(sent, before) {
			t.Errorf("sent %v, before %v", sent, before)
		}
	})
}

func TestLeaderEndsWithTheSessionWhileEtcdCannotBeReached(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		s.link.BlackHole()
		asked := time.Now()
		done := later(func() error {
			_, err := s.election().Leader(deadline(t))
			return err
		})
		time.Sleep(time.Second)
		if err := s.sess.Close(within(t, time.Second)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Close: %v", err)
		}
		if err := await(t, "Leader returns", done); !errors.Is(err, holdfast.ErrClosed) || time.Since(asked) > 3*time.Second {
			t.Errorf("after %v: %v", time.Since(asked), err)
		}
	})
}
