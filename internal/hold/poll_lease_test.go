package hold

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// mustHold returns the hold of a lock.
func mustHold(t *testing.T, p *kit.Process, name string) *Hold {
	t.Helper()
	h, err := Acquire(kit.Within(t, time.Minute), queue.New(p.Host, holdfast.KindLock, name), Request{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func hasEnded(h *Hold) bool { return h.cause.Load() != nil }

// A lease may be lost while its locks are granted, and what is held on it was told before.
func TestHoldOnALeaseThatWasLostMeanwhileEndsAtOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		before := mustHold(t, p, "x")
		grants, err := queue.Set{queue.New(p.Host, holdfast.KindLock, "y")}.Acquire(t.Context(), queue.Request{})
		if err != nil {
			t.Fatal(err)
		}
		before.grant.Lease.Lose(holdfast.CauseRevoked, nil)
		synctest.Wait()
		h := Begin(grants, Request{MaxHold: time.Hour})[0]
		synctest.Wait()
		if !hasEnded(before) || !hasEnded(h) || h.limit != nil {
			t.Errorf("it has ended: %v, with a timer: %v; the one before: %v", hasEnded(h), h.limit != nil, hasEnded(before))
		}
	})
}

// A lease may live for days. What it has to tell at its end and with its renewals it is told with its first hold.
func TestNextHoldOnALeaseHangsNothingOnIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mustHold(t, p, "x")
		asked := false
		p.Host.Lease().Errands.Run(func() *lease.Errand {
			asked = true
			return nil
		})
		mustHold(t, p, "y")
		if p.Host.Lease().Errands.Next(); !asked {
			t.Error("the errands of the lease were set again")
		}
	})
}

// Why an entry is gone, the poll tells in the order of what is worse.
func TestCauseThatAPollTells(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		poll, own := pollerOf(p.Host), p.Host.Lease().Cluster()
		for name, c := range map[string]struct {
			cluster uint64
			key     bool // the session key stands
			want    holdfast.Cause
		}{
			"deleted":         {own, true, holdfast.CauseEntryDeleted},
			"revoked":         {own, false, holdfast.CauseRevoked},
			"another cluster": {own + 1, false, holdfast.CauseClusterChanged},
			"a restored one":  {own + 1, true, holdfast.CauseClusterChanged},
		} {
			r := new(pb.RangeResponse)
			if c.key {
				r.Kvs = []*mvccpb.KeyValue{{Key: []byte(p.SessionKey())}}
			}
			reply := requests.Reply{Header: &pb.ResponseHeader{ClusterId: c.cluster}, Responses: []*pb.ResponseOp{
				{Response: &pb.ResponseOp_ResponseRange{ResponseRange: r}},
			}}
			if got := poll.causeOf(reply, 0); got != c.want {
				t.Errorf("%s: %v", name, got)
			}
		}
	})
}

// One question at a time whether a lease exists is enough, and only that it does not ends the lease: not 0 seconds,
// which is less than one, and no error.
func TestOneQuestionAtATimeWhetherALeaseExists(t *testing.T) {
	for name, c := range map[string]struct {
		revoked bool
		fate    etcdfake.Fate
		ends    bool
	}{
		"it exists":             {},
		"it is gone":            {revoked: true, ends: true},
		"etcd refuses":          {fate: etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}},
		"the answer comes late": {fate: etcdfake.Fate{Reply: 100 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				srv := etcdfake.New(etcdfake.Options{MinTTL: time.Second})
				t.Cleanup(srv.Close)
				p := kit.Start(t, srv, func(o *session.Options) { o.TTL, o.DriftMargin = time.Second, 0 })
				poll, l := pollerOf(p.Host), p.Host.Lease()
				p.Plan(func(kind string, _ int) etcdfake.Fate {
					switch kind {
					case "LeaseTimeToLive":
						return c.fate
					case "event":
						return etcdfake.Fate{Reply: time.Hour}
					}
					return etcdfake.Fate{}
				})
				if c.revoked {
					srv.Revoke(l.ID())
				}
				for range 3 {
					poll.checkLease(l)
				}
				time.Sleep(8*kit.OneWay + c.fate.Reply)
				if n := p.Counts()["LeaseTimeToLive"]; n != 1 || (l.Lost() != nil) != c.ends {
					t.Errorf("asked %d times; lost: %v", n, l.Lost())
				}
				if !c.ends {
					poll.checkLease(l)
					time.Sleep(8*kit.OneWay + c.fate.Reply)
					if n := p.Counts()["LeaseTimeToLive"]; n != 2 {
						t.Errorf("asked %d times, want once more", n)
					}
				}
				p.Plan(nil)
			})
		})
	}
}

// The answer about one lease does not end the question about the next one.
func TestAnswerAboutALostLeaseIsNoneAboutTheNext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		poll, next := pollerOf(p.Host), new(lease.Lease)
		poll.checkLease(p.Host.Lease())
		poll.mu.Lock()
		poll.asking = next
		poll.mu.Unlock()
		time.Sleep(4 * kit.OneWay)
		if poll.asking != next {
			t.Error("the next lease counts as asked about")
		}
	})
}

// A Txn of a renewal takes a hundred comparisons, and none for nothing.
func TestErrandIsForAHundredHoldsAtMost(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		h := mustHold(t, p, "x")
		poll, l := h.poll, h.grant.Lease
		now := p.Host.Clock()
		for _, n := range []int{0, 1, requests.MaxOps, requests.MaxOps + 1} {
			clear(poll.roster.holds)
			for range n {
				poll.roster.holds[&Hold{heldEntry: heldEntry{grant: h.grant, host: h.host}}] = now
			}
			e := poll.errand(l)
			if asks := n > 0 && n <= requests.MaxOps; (e != nil) != asks || asks && len(e.If) != n {
				t.Errorf("%d holds: %v", n, e)
			}
			if e == nil {
				continue
			}
			if e.Told(now+time.Second, true); len(poll.roster.on(l, true)) != n {
				t.Errorf("all stand, and %d of %d count as polled", len(poll.roster.on(l, true)), n)
			}
			if e.Told(now+2*time.Second, false); len(poll.roster.on(l, true)) != 0 {
				t.Errorf("something has changed, and %d of %d count as polled", len(poll.roster.on(l, true)), n)
			}
		}
		clear(poll.roster.holds)
		poll.roster.add(h.holds)
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A notice that could not be read is one that the next poll must find.
func TestEntryWhoseNoticeCouldNotBeReadCountsAsNeverPolled(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		h := mustHold(t, p, "x")
		for refused, want := range map[bool]int{true: 0, false: 1} {
			h.poll.roster.notePolled(h.holds, p.Host.Clock())
			p.PlanAll("read", etcdfake.Fate{LoseRequest: refused, Code: codes.PermissionDenied})
			h.poll.readNotices(context.Background(), h.holds)
			if polled := h.poll.roster.on(h.grant.Lease, true); len(polled) != want {
				t.Errorf("refused %v: %d count as polled", refused, len(polled))
			}
		}
		p.Plan(nil)
	})
}

// What ends the holds of a lost lease may not have known a hold that a notice ends at that moment. Its entry is not
// left to Release.
func TestNoticeOnALostLeaseLeavesNoEntry(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		h := mustHold(t, p, "x")
		h.poll.roster.remove(h.holds)
		h.grant.Lease.Lose(holdfast.CauseRevoked, nil)
		synctest.Wait()
		v := layout.Value{Queued: time.Now(), Notice: layout.Notice{By: "ops", Reason: "deploy", At: time.Now()}}
		h.noteEntry(&mvccpb.KeyValue{Value: []byte(v.Encode()), ModRevision: h.Created() + 1})
		if !hasEnded(h) || h.Blocks() || !keepsEntry(*h.cause.Load()) {
			t.Errorf("ended: %v, and it keeps its name: %v", h.Check(), h.Blocks())
		}
		srv.Revoke(h.Lease())
	})
}
