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
	if s := await(t, "Observe ends", told); !errors.Is(s.err, holdfast.ErrClientClosed) {
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
