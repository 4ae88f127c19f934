package election_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

func TestCampaignReturnsATermWhoseEntryExists(t *testing.T) {
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
	resp, err := term.Client().Txn(deadline(t)).If(term.Holding()...).Commit()
	if err != nil || !resp.Succeeded {
		t.Errorf("Holding: %v, %v", resp, err)
	}
	leader, err := el.Leader(deadline(t))
	want := election.Leader{
		Token: term.Token(), Value: "node-1", Key: term.Key(), Lease: sess.Lease(),
	}
	want.Host, want.PID, want.Owner, want.Queued = leader.Host, os.Getpid(), leader.Owner, leader.Queued
	// A second later its entry is put again, with the time since when it leads.
	want.Since, want.Revision = leader.Since, leader.Revision
	again := leader.Revision > int64(term.Token())
	if err != nil || leader != want || leader.Queued.IsZero() || leader.Since.IsZero() == again {
		t.Errorf("Leader %+v, %v, want %+v", leader, err, want)
	}
	ctx, cancel := term.WithContext(t.Context())
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

// etcd issue 21128: whenever a campaign fails, it leaves no candidate.
func TestCampaignThatFailsLeavesNoCandidate(t *testing.T) {
	t.Parallel()
	t.Run("its context ends while it is queued", func(t *testing.T) {
		srv := etcdtest.Start(t)
		leader := campaign(t, newElection(t, srv.Client(t), session.Options{}), "leader")
		el := newElection(t, srv.Client(t), session.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		c := campaignLater(ctx, el, "candidate")
		srv.WaitForKeys(t, prefix, 2)
		cancel()
		r := await(t, "Campaign returns", c)
		var failed *view.AcquireError
		if !errors.As(r.err, &failed) || !errors.Is(r.err, context.Canceled) {
			t.Errorf("%v", r.err)
		}
		// On a busy machine the session goes on with the removal after Campaign has returned.
		if kvs := srv.WaitForKeys(t, prefix, 1); string(kvs[0].Key) != leader.Key() {
			t.Errorf("entries %v", kvs)
		}
	})
	t.Run("its context had ended", func(t *testing.T) {
		link := etcdtest.Start(t).Link(t)
		el := newElection(t, link.Client(), session.Options{TTL: 600 * time.Second}).With(election.Options{Value: "v"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := settled(t, link)
		if _, err := el.Campaign(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if sent := link.Count().Since(before); sent.Total() != 0 {
			t.Errorf("RPCs were sent: %v", sent)
		}
	})
	t.Run("its request arrives after it has given up", func(t *testing.T) {
		srv := etcdtest.Start(t)
		link := srv.Link(t)
		el := newElection(t, link.Client(), session.Options{}).With(election.Options{Value: "late"})
		late := link.Hold("Txn", isTxnThatPuts("late"))
		_, err := el.Campaign(untilHeld(t, late))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		late.Deliver()
		<-late.Delivered()
		eventually(t, "the late entry is removed", func() bool { return len(srv.Keys(t, prefix)) == 0 })
	})
	t.Run("its request arrives, the reply does not", func(t *testing.T) {
		srv := etcdtest.Start(t)
		link := srv.Link(t)
		el := newElection(t, link.Client(), session.Options{TTL: 60 * time.Second}).With(election.Options{Value: "v"})
		link.BlackHoleReplies()
		start := time.Now()
		_, err := el.Campaign(within(t, 150*time.Millisecond))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		link.Heal()
		srv.WaitForKeys(t, prefix, 0)
	})
	t.Run("the session is closed", func(t *testing.T) {
		srv := etcdtest.Start(t)
		campaign(t, newElection(t, srv.Client(t), session.Options{}), "leader")
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
	el := newElection(t, link.Client(), session.Options{})
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

// etcd issues 19597 and 11007: a leader without an entry.
func TestCandidateWhoseLeaseIsGoneLeadsByANewEntry(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	leader := campaign(t, newElection(t, srv.Client(t), session.Options{}), "leader")
	sess := open(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
	c := campaignLater(deadline(t), election.New(sess, "x"), "candidate")
	old := srv.WaitForKeys(t, prefix, 2)[1]
	srv.Revoke(t, sess.Lease())
	eventually(t, "it queues again", func() bool {
		kvs := srv.Keys(t, prefix)
		return len(kvs) == 2 && kvs[1].Lease != old.Lease
	})
	if len(c) != 0 {
		t.Fatal("it leads while another candidate does")
	}
	resign(t, leader)
	term := won(t, c)
	kvs := srv.Keys(t, prefix)
	if len(kvs) != 1 || kvs[0].CreateRevision != int64(term.Token()) || kvs[0].Lease == old.Lease {
		t.Errorf("token %v, entries %v", term.Token(), kvs)
	}
}
