package robustness

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// The role for observers in docs/client.md only reads. It is enough for an
// election.Reader, needs each of its permissions, and does not suffice for a session.
func TestReadOnlyRoleCanObserveTheLeader(t *testing.T) {
	t.Parallel()
	g := guard(t, nil)
	g.user(t, "watcher", "observers")
	leader := election.New(open(t, g.admin, session.Options{}), "x")
	term, err := leader.With(election.Options{Value: "v"}).Campaign(deadline(t))
	must(t)(nil, err)
	link := g.srv.Link(t)
	cli := g.client(t, "watcher", link)
	r := election.NewReader(cli, "x")
	l, err := r.Leader(deadline(t))
	must(t)(nil, err)
	if l.Token != term.Token() || l.Value != "v" {
		t.Errorf("leader %+v", l)
	}
	o, err := r.Observer(deadline(t))
	must(t)(nil, err)
	defer o.Close()
	must(t)(nil, term.Resign(deadline(t)))
	await(t, "the observer sees the vacancy", func() bool { return o.Current().Leader == election.Leader{} })
	term, err = leader.With(election.Options{Value: "w"}).Campaign(deadline(t))
	must(t)(nil, err)
	await(t, "the observer sees the next leader",
		func() bool { v := o.Current(); return v.Leader.Token == term.Token() && v.Trusted })
	if sent := link.Count(); sent["LeaseGrant"]+sent["LeaseKeepAlive"]+sent["Put"] != 0 {
		t.Errorf("the reader sent %v", sent)
	}
	if _, err := session.New(deadline(t), cli, session.Options{}); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("session.New: %v", err)
	}

	for _, p := range g.roles["observers"] {
		g.revoke(t, "observers", p)
		if _, err := r.Leader(deadline(t)); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("Leader without permission for %s: %v", p.key, err)
		}
		if _, err := r.Observer(deadline(t)); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("Observer without permission for %s: %v", p.key, err)
		}
		g.grant(t, "observers", p)
	}
	_, err = r.Leader(deadline(t))
	must(t)(nil, err)
}

// etcd checks a new watch with the auth token that its stream was opened with. After
// that has expired, a new observer needs another stream.
func TestReaderWatchesAfterTheAuthTokenOfItsStreamExpires(t *testing.T) {
	t.Parallel()
	g := guard(t, shortTokens(t))
	g.user(t, "watcher", "observers")
	link := g.srv.Link(t)
	r := election.NewReader(g.client(t, "watcher", link), "x")
	standing, err := r.Observer(deadline(t))
	must(t)(nil, err)
	defer standing.Close()
	g.expire(t)
	told := make(chan string, 10)
	ctx, cancel := context.WithCancel(deadline(t))
	ended := make(chan struct{})
	go func() { // joined by the deferred function
		defer close(ended)
		for l := range r.Watch(ctx) {
			told <- l.Value
		}
	}()
	defer func() { cancel(); <-ended }()
	if v := <-told; v != "" {
		t.Errorf("first value %q, want none", v)
	}
	term, err := election.New(open(t, g.admin, session.Options{}),
		"x").With(election.Options{Value: "v"}).Campaign(deadline(t))
	must(t)(nil, err)
	if v := <-told; v != "v" {
		t.Errorf("second value %q", v)
	}
	await(t, "the observer from before the expiry sees the leader",
		func() bool { return standing.Current().Leader.Token == term.Token() })
}

// Each of three members hangs in turn. One of them serves the watch, which then
// delivers nothing; the observer learns of changes by reads from other members.
func TestReaderSeesNewLeadersWhileAMemberHangs(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true})
	var links []*etcdtest.Link
	var endpoints []string
	for _, m := range cluster.Members() {
		link := m.Link(t)
		links, endpoints = append(links, link), append(endpoints, link.Endpoints()...)
	}
	cli, err := clientv3.New(session.ClientConfig(endpoints...))
	must(t)(nil, err)
	defer func() { _ = cli.Close() }()
	leader := election.New(open(t, cluster.Client(t), session.Options{TTL: 60 * time.Second}),
		"x").With(election.Options{Value: "v"})
	o, err := election.NewReader(cli, "x").With(election.ReaderOptions{MaxAge: time.Second}).Observer(deadline(t))
	must(t)(nil, err)
	defer o.Close()
	for i, link := range links {
		link.BlackHole()
		term, err := leader.Campaign(deadline(t))
		must(t)(nil, err)
		await(t, "the observer sees the leader",
			func() bool { v := o.Current(); return v.Leader.Token == term.Token() && v.Trusted })
		must(t)(nil, term.Resign(deadline(t)))
		await(t, "the observer sees the vacancy",
			func() bool { v := o.Current(); return v.Leader == election.Leader{} && v.Trusted })
		if v := o.Current(); v.Err != nil {
			t.Fatalf("while member %d hangs: %v", i, v.Err)
		}
		link.Heal()
	}
}
