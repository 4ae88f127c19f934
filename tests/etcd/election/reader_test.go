package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

func TestReaderNeedsNoSessionAndWritesNothing(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	r := election.NewReader(link.Client(), "x")
	if _, err := r.Leader(deadline(t)); !errors.Is(err, election.ErrNoLeader) {
		t.Errorf("without a leader: %v", err)
	}
	told := observe(t, r)
	expect(t, told, "")
	o, err := r.Observer(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	term := campaign(t, newElection(t, srv.Client(t), session.Options{}), "v")
	expect(t, told, "v")
	if l, err := r.Leader(deadline(t)); err != nil || l.Token != term.Token() || l.Key != term.Key() {
		t.Errorf("%+v, %v", l, err)
	}
	eventually(t, "the observer knows", func() bool {
		v := o.Current()
		return v.Leader.Token == term.Token() && v.Trusted
	})
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

func TestReaderEndsWithAnErrorWhenItsClientIsClosed(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	r := election.NewReader(cli, "x")
	o, err := r.Observer(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	told := observe(t, r)
	expect(t, told, "")
	if err := cli.Close(); err != nil {
		t.Fatal(err)
	}
	if s := await(t, "Watch ends", told); !errors.Is(s.err, holdfast.ErrClientClosed) {
		t.Errorf("%+v, %v", s.leader, s.err)
	}
	eventually(t, "the observer ends", func() bool { return o.Current().Err != nil })
	if v := o.Current(); v.Trusted || !errors.Is(v.Err, holdfast.ErrClientClosed) {
		t.Errorf("%+v", v)
	}
	o.Close()
	if _, err := r.Leader(within(t, 10*time.Second)); !errors.Is(err, holdfast.ErrClientClosed) {
		t.Errorf("Leader: %v", err)
	}
}

// An epoch that was raised after an election is not the leader's. Then a new reader's token has none.
func TestLeadersTokenHasNoEpochThatWasRaisedSince(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	raise := func(epoch string) {
		if _, err := cli.Put(deadline(t), "holdfast/epoch", epoch); err != nil {
			t.Fatal(err)
		}
	}
	el := newElection(t, srv.Client(t), session.Options{})
	same := func(when string, term *election.Term) {
		t.Helper()
		if l, err := el.Leader(deadline(t)); err != nil || l.Token != term.Token() {
			t.Errorf("%s: leader's token %v, its term's %v, %v", when, l.Token, term.Token(), err)
		}
	}
	term := campaign(t, el, "v")
	same("no epoch", term)
	raise("1")
	same("elected before there was an epoch", term)
	resign(t, term)
	term = campaign(t, el, "v")
	if term.Token().Epoch() != 1 {
		t.Errorf("epoch %d", term.Token().Epoch())
	}
	same("elected under the epoch", term)
	o, err := el.Observer(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	raise("2")
	if l, err := el.Leader(deadline(t)); err != nil || l.Token != holdfast.Token(term.Token().Revision()) {
		t.Errorf("elected under an earlier epoch: %v, %v", l.Token, err)
	}
	if v := o.Current(); v.Leader.Token != term.Token() {
		t.Errorf("an observer forgot the token: %v", v.Leader.Token)
	}
}
