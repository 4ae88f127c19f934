package election_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

func successOps(request any) []*pb.RequestOp {
	if r, ok := request.(*pb.TxnRequest); ok {
		return r.Success
	}
	return nil
}

func TestCampaignReturnsATermWhoseEntryStands(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	el := election.New(sess, "x")
	term := campaign(t, el, "node-1")
	kvs := srv.Keys(t, prefix)
	if len(kvs) != 1 || string(kvs[0].Key) != term.Key() || candidate(kvs[0].Value) != "node-1" ||
		kvs[0].CreateRevision != int64(term.Token()) || kvs[0].Lease != int64(sess.Lease()) {
		t.Fatalf("term %s (token %v), entries %v", term.Key(), term.Token(), kvs)
	}
	if term.Lease() != sess.Lease() || term.Client() != sess.Client() || term.Value() != "node-1" ||
		term.AcquiredRevision() < term.Token().Revision() || term.Check() != nil {
		t.Errorf("term %+v", term)
	}
	resp, err := term.Client().Txn(deadline(t)).If(term.IsOwner()).Commit()
	if err != nil || !resp.Succeeded {
		t.Errorf("IsOwner: %v, %v", resp, err)
	}
	leader, err := el.Leader(deadline(t))
	want := election.Leader{Token: term.Token(), Value: "node-1", Key: term.Key(), Lease: sess.Lease(), Revision: int64(term.Token())}
	want.Host, want.PID, want.Owner, want.Queued = leader.Host, os.Getpid(), leader.Owner, leader.Queued
	if err != nil || leader != want || leader.Queued.IsZero() {
		t.Errorf("Leader %+v, %v, want %+v", leader, err, want)
	}
	ctx, cancel := term.Context(t.Context())
	defer cancel()
	if h, ok := fencing.FromContext(ctx); !ok || h != fencing.Holder(term) {
		t.Error("the term's context does not carry it")
	}
	resign(t, term)
	if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
		t.Errorf("after Resign: %v", kvs)
	}
	if !errors.Is(context.Cause(ctx), holdfast.ErrReleased) || term.Check() != holdfast.ErrReleased {
		t.Errorf("after Resign: cause %v, Check %v", context.Cause(ctx), term.Check())
	}
	if _, err := el.Leader(deadline(t)); !errors.Is(err, election.ErrNoLeader) {
		t.Errorf("Leader: %v", err)
	}
}

func TestCandidatesOfOneSessionAndOfSeveralLeadInTurn(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a, b := open(t, srv.Client(t), session.Options{}), open(t, srv.Client(t), session.Options{})
	first := campaign(t, election.New(a, "x"), "a1")
	second := campaignLater(deadline(t), election.New(b, "x"), "b")
	srv.WaitForKeys(t, prefix, 2)
	third := campaignLater(deadline(t), election.New(a, "x"), "a2") // waits locally
	resign(t, first)
	term := won(t, second)
	if len(third) != 0 || term.Token() <= first.Token() {
		t.Errorf("token %v after %v; third is done: %v", term.Token(), first.Token(), len(third) != 0)
	}
	resign(t, term)
	if last := won(t, third); last.Token() <= term.Token() || last.Value() != "a2" {
		t.Errorf("token %v after %v", last.Token(), term.Token())
	}
}

func TestBadInputIsRefusedBeforeAnyRPC(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 600 * time.Second})
	good := election.New(sess, "good")
	fn := func(context.Context, *election.Term) error { t.Error("fn was called"); return nil }
	tooLarge := strings.Repeat("v", election.MaxValue+1)
	ctx := soon(t, 5*time.Second) // for what is not refused
	before := settled(t, link)

	type call = func(el *election.Election, ctx context.Context, value string) error
	calls := map[string]call{
		"Campaign": func(el *election.Election, ctx context.Context, value string) error {
			_, err := el.Campaign(ctx, value)
			return err
		},
		"RunWhileLeader": func(el *election.Election, ctx context.Context, value string) error {
			return el.RunWhileLeader(ctx, value, fn)
		},
		"Run": func(el *election.Election, ctx context.Context, value string) error { return el.Run(ctx, value, fn) },
		"Leader": func(el *election.Election, ctx context.Context, _ string) error {
			_, err := el.Leader(ctx)
			return err
		},
		"Observer": func(el *election.Election, ctx context.Context, _ string) error {
			_, err := el.Observer(ctx)
			return err
		},
		"Observe": func(el *election.Election, ctx context.Context, _ string) (err error) {
			n := 0
			for _, err = range el.Observe(ctx) {
				n++
			}
			if n != 1 {
				t.Errorf("Observe yielded %d pairs", n)
			}
			return err
		},
	}
	names := map[string]*election.Election{
		"empty name":     election.New(sess, ""),
		"empty segment":  election.New(sess, "a//b"),
		"leading slash":  election.New(sess, "/a"),
		"reserved":       election.New(sess, "a/@/b"),
		"name too long":  election.New(sess, strings.Repeat("n", 513)),
		"empty prefix":   election.NewAt(sess, ""),
		"prefix too big": election.NewAt(sess, strings.Repeat("n", 513)),
	}
	options := map[string]election.Options{
		"Options.DrainTimeout":    {DrainTimeout: -1},
		"Options.MaxAge":          {MaxAge: time.Millisecond},
		"Options.HealthTolerance": {HealthTolerance: -1},
		"Options.Pause":           {Pause: backoff.Policy{Multiplier: 0.5}},
	}
	argument := func(t *testing.T, what, want string, err error) {
		t.Helper()
		var bad *holdfast.ArgumentError
		if !errors.As(err, &bad) || bad.Argument != want {
			t.Errorf("%s: %v, want an ArgumentError for %s", what, err, want)
		}
	}
	for name, call := range calls {
		for what, el := range names {
			var bad *holdfast.NameError
			if err := call(el, ctx, "v"); !errors.As(err, &bad) {
				t.Errorf("%s, %s: %v, want a NameError", name, what, err)
			}
		}
		for field, o := range options {
			argument(t, name, field, call(good.With(o), ctx, "v"))
		}
		argument(t, name+" without a context", "ctx", call(good, nil, "v")) //nolint:staticcheck // a nil context is the bad input here
		argument(t, name+" without a session", "sess", call(election.New(nil, "x"), ctx, "v"))
	}
	for _, name := range []string{"Campaign", "RunWhileLeader", "Run"} {
		err := calls[name](good, ctx, tooLarge)
		argument(t, name+" with a large value", "value", err)
		var failed *election.CampaignError
		if !errors.As(err, &failed) || failed.Name != "good" || failed.Lease != sess.Lease() || failed.State != holdfast.Connected {
			t.Errorf("%s: %+v, want a CampaignError", name, err)
		}
	}
	argument(t, "RunWhileLeader", "fn", good.RunWhileLeader(ctx, "v", nil))
	argument(t, "Run", "fn", good.Run(ctx, "v", nil))
	if err := election.CheckName("a//b"); err == nil {
		t.Error("CheckName passes an empty segment")
	}
	if sent := link.Count().Since(before); sent.Total() != 0 {
		t.Errorf("RPCs were sent: %v", sent)
	}
	if err := good.RunWhileLeader(deadline(t), tooLarge[1:], func(context.Context, *election.Term) error { return nil }); err != nil {
		t.Errorf("a value of MaxValue bytes: %v", err)
	}
}

// Upstream issue 6127 and others: what could only wait for itself is refused.
func TestCampaignWithAContextOfALiveTermIsReentrant(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), session.Options{})
	el := election.New(sess, "x")
	term := campaign(t, el, "v")
	ctx, cancel := term.Context(deadline(t))
	defer cancel()
	nothing := func(context.Context, *election.Term) error { return nil }
	for name, err := range map[string]error{
		"Campaign":       func() error { _, err := election.New(sess, "x").Campaign(ctx, "v"); return err }(),
		"RunWhileLeader": el.RunWhileLeader(ctx, "v", nothing),
		"Run":            el.Run(ctx, "v", nothing),
		"Yield":          func() error { _, err := term.Yield(ctx); return err }(),
	} {
		var failed *election.CampaignError
		if !errors.Is(err, holdfast.ErrReentrant) || !errors.As(err, &failed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if term.Check() != nil {
		t.Errorf("the term has ended: %v", term.Check())
	}
	if _, err := election.New(sess, "y").Campaign(ctx, "v"); err != nil {
		t.Errorf("another election: %v", err)
	}
	resign(t, term)
	if _, err := el.Campaign(context.WithoutCancel(ctx), "v"); err != nil {
		t.Errorf("after the term: %v", err)
	}
}

// Upstream issue 21128: whatever the moment, no candidate stays.
func TestCampaignThatFailsLeavesNoCandidate(t *testing.T) {
	t.Parallel()
	t.Run("its context ends in the queue", func(t *testing.T) {
		srv := etcdtest.Start(t)
		leader := campaign(t, election.New(open(t, srv.Client(t), session.Options{}), "x"), "leader")
		el := election.New(open(t, srv.Client(t), session.Options{}), "x")
		ctx, cancel := context.WithCancel(t.Context())
		c := campaignLater(ctx, el, "candidate")
		srv.WaitForKeys(t, prefix, 2)
		cancel()
		r := await(t, "Campaign returns", c)
		var failed *election.CampaignError
		if !errors.As(r.err, &failed) || !errors.Is(r.err, context.Canceled) {
			t.Errorf("%v", r.err)
		}
		if kvs := srv.Keys(t, prefix); len(kvs) != 1 || string(kvs[0].Key) != leader.Key() {
			t.Errorf("entries %v", kvs)
		}
	})
	t.Run("its context has ended", func(t *testing.T) {
		link := etcdtest.Start(t).Link(t)
		el := election.New(open(t, link.Client(), session.Options{TTL: 600 * time.Second}), "x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := settled(t, link)
		if _, err := el.Campaign(ctx, "v"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if sent := link.Count().Since(before); sent.Total() != 0 {
			t.Errorf("RPCs were sent: %v", sent)
		}
	})
	t.Run("its request arrives after it has given up", func(t *testing.T) {
		srv := etcdtest.Start(t)
		link := srv.Link(t)
		el := election.New(open(t, link.Client(), session.Options{Retry: quickAttempts}), "x")
		late := link.Hold("Txn", isTxnThatPuts("late"))
		_, err := el.Campaign(soon(t, 50*time.Millisecond), "late")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		late.Deliver()
		<-late.Delivered()
		eventually(t, "no candidate stands that nobody is", func() bool { return len(srv.Keys(t, prefix)) == 0 })
	})
	t.Run("cut off, and its request had arrived", func(t *testing.T) {
		srv := etcdtest.Start(t)
		link := srv.Link(t)
		el := election.New(open(t, link.Client(), session.Options{TTL: 60 * time.Second, Retry: quickAttempts}), "x")
		link.BlackHoleReplies()
		start := time.Now()
		_, err := el.Campaign(soon(t, 150*time.Millisecond), "v")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		link.Heal()
		srv.WaitForKeys(t, prefix, 0)
	})
	t.Run("the session is closed", func(t *testing.T) {
		srv := etcdtest.Start(t)
		campaign(t, election.New(open(t, srv.Client(t), session.Options{}), "x"), "leader")
		sess := open(t, srv.Client(t), session.Options{})
		c := campaignLater(deadline(t), election.New(sess, "x"), "candidate")
		srv.WaitForKeys(t, prefix, 2)
		if err := sess.Close(deadline(t)); err != nil {
			t.Error(err)
		}
		if r := await(t, "Campaign returns", c); !errors.Is(r.err, holdfast.ErrClosed) {
			t.Errorf("%v", r.err)
		}
		if kvs := srv.Keys(t, prefix); len(kvs) != 1 {
			t.Errorf("entries %v", kvs)
		}
	})
}

func TestCampaignWhoseReplyWasLostLeadsByItsOwnEntry(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	el := election.New(open(t, link.Client(), session.Options{}), "x")
	link.LoseReply("Txn", 1, codes.Unavailable)
	term := campaign(t, el, "v")
	if kvs := srv.Keys(t, prefix); len(kvs) != 1 || kvs[0].CreateRevision != int64(term.Token()) {
		t.Errorf("token %v, entries %v", term.Token(), kvs)
	}
	resign(t, term)
	if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
		t.Errorf("after Resign: %v", kvs)
	}
}

// Upstream issues 19597 and 11007: a leader that is none.
func TestCandidateWhoseLeaseIsGoneQueuesAgainAndLeadsByAnEntryThatStands(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	leader := campaign(t, election.New(open(t, srv.Client(t), session.Options{}), "x"), "leader")
	sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
	c := campaignLater(deadline(t), election.New(sess, "x"), "candidate")
	old := srv.WaitForKeys(t, prefix, 2)[1]
	srv.Revoke(t, sess.Lease())
	eventually(t, "it queues again", func() bool {
		kvs := srv.Keys(t, prefix)
		return len(kvs) == 2 && kvs[1].Lease != old.Lease
	})
	if len(c) != 0 {
		t.Fatal("led while another does")
	}
	resign(t, leader)
	term := won(t, c)
	if kvs := srv.Keys(t, prefix); len(kvs) != 1 || kvs[0].CreateRevision != int64(term.Token()) || kvs[0].Lease == old.Lease {
		t.Errorf("token %v, entries %v", term.Token(), kvs)
	}
}
