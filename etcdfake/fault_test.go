package etcdfake_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
)

// bubble runs a test in virtual time, with a server and one link to it.
func inBubble(t *testing.T, f func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link)) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(nil)
		defer srv.Close()
		f(t, srv, srv.Link())
	})
}

func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestLeaseExpiresAtItsTTLAndNotBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) {
		cli := link.Client()
		lease, err := cli.Grant(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cli.Put(t.Context(), "k", "v", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if _, err := cli.KeepAliveOnce(t.Context(), lease.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5*time.Second - time.Nanosecond)
		if len(srv.Keys("k")) != 1 {
			t.Error("expired early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(srv.Keys("k")) != 0 {
			t.Error("outlived its lease")
		}
		if _, err := cli.KeepAliveOnce(t.Context(), lease.ID); err != rpctypes.ErrLeaseNotFound {
			t.Errorf("renewal of a lease that is gone: %v", err)
		}
	})
}

func TestKeepAliveRenewsUntilTheClientCloses(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) {
		cli := link.Client()
		lease, err := cli.Grant(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		answers, err := cli.KeepAlive(t.Context(), lease.ID)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if resp := <-answers; resp == nil || resp.TTL != 5 {
				t.Fatalf("renewal: %v", resp)
			}
		}
		if err := cli.Close(); err != context.Canceled {
			t.Errorf("Close: %v", err)
		}
		for range answers {
		}
		if _, err := cli.Get(soon(t, time.Second), "k"); err == nil {
			t.Error("a closed client works")
		}
	})
}

func TestRequestArrivesLongAfterItsCallerGaveUp(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) {
		link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{Request: time.Hour} })
		if _, err := link.Client().Put(soon(t, time.Second), "k", "v"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
		if len(srv.Keys("k")) != 0 {
			t.Error("arrived too early")
		}
		time.Sleep(time.Hour)
		if len(srv.Keys("k")) != 1 {
			t.Error("did not arrive")
		}
	})
}

func TestLostRepliesAndRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) {
		cli := link.Client()
		link.LoseReply("Put", 1, codes.Unavailable)
		if _, err := cli.Put(t.Context(), "done", ""); status.Code(err) != codes.Unavailable {
			t.Errorf("lost reply: %v", err)
		}
		link.LoseRequest("Put", 1)
		if _, err := cli.Put(t.Context(), "not done", ""); status.Code(err) != codes.Unavailable {
			t.Errorf("lost request: %v", err)
		}
		link.LoseReply("Put", 1, codes.DeadlineExceeded)
		start := time.Now()
		if _, err := cli.Put(soon(t, time.Minute), "done in silence", ""); err != context.DeadlineExceeded || time.Since(start) != time.Minute {
			t.Errorf("silence: %v after %v", err, time.Since(start))
		}
		link.LoseReply("Put", 1, codes.Canceled)
		before := link.Count()["Put"]
		if _, err := cli.Put(t.Context(), "twice", ""); err != nil || link.Count()["Put"]-before != 2 || srv.Keys("twice")[0].Version != 2 {
			t.Errorf("etcd's client sends a write again after Canceled: %v, %v", err, srv.Keys("twice"))
		}
		link.LoseReply("Range", 3, codes.Unavailable)
		if _, err := cli.Get(t.Context(), "done"); err != nil || link.Count()["Range"] != 4 {
			t.Errorf("etcd's client repeats reads: %v, %v", err, link.Count())
		}
		if len(srv.Keys("done")) != 2 || len(srv.Keys("not done")) != 0 {
			t.Errorf("the store has %v", srv.Keys(""))
		}
	})
}

func TestCutFailsWhatIsUnderWayAndHoldsWhatComesAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) {
		cli := link.Client()
		link.Delay(time.Second)
		time.AfterFunc(500*time.Millisecond, link.Cut)
		start := time.Now()
		if _, err := cli.Put(t.Context(), "a", ""); status.Code(err) != codes.Unavailable || time.Since(start) != 500*time.Millisecond {
			t.Errorf("under way: %v after %v", err, time.Since(start))
		}
		if _, err := cli.Put(soon(t, time.Second), "b", ""); err != context.DeadlineExceeded {
			t.Errorf("while cut: %v", err)
		}
		time.AfterFunc(time.Minute, link.Heal)
		if _, err := cli.Put(t.Context(), "c", ""); err != nil || time.Since(start) < time.Minute {
			t.Errorf("waiting for the connection: %v after %v", err, time.Since(start))
		}
		if kvs := srv.Keys(""); len(kvs) != 1 || string(kvs[0].Key) != "c" {
			t.Errorf("the store has %v", kvs)
		}
	})
}

func TestBlackHoleKeepsWhatItSwallows(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) {
		cli := link.Client()
		link.BlackHole()
		if _, err := cli.Put(soon(t, time.Second), "a", ""); err != context.DeadlineExceeded || len(srv.Keys("")) != 0 {
			t.Errorf("black hole: %v, %v", err, srv.Keys(""))
		}
		link.Heal()
		if len(srv.Keys("a")) != 1 {
			t.Error("what was under way did not arrive")
		}
		link.BlackHoleReplies()
		if _, err := cli.Put(soon(t, time.Second), "b", ""); err != context.DeadlineExceeded || len(srv.Keys("b")) != 1 {
			t.Errorf("no replies: %v, %v", err, srv.Keys("b"))
		}
	})
}

// A leader that has been replaced says that it renewed, and has not.
func TestRenewalsThatLie(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) {
		cli := link.Client()
		lease, err := cli.Grant(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		srv.ChangeLeader(3 * time.Second) // a full TTL from here
		time.Sleep(2 * time.Second)
		renewal, err := cli.KeepAliveOnce(t.Context(), lease.ID)
		if err != nil || renewal.TTL != 5 {
			t.Fatalf("%v, %v", renewal, err)
		}
		read, err := cli.Get(t.Context(), "k")
		if err != nil || read.Header.RaftTerm != renewal.RaftTerm+1 {
			t.Errorf("renewal at term %d, read at %v, %v", renewal.RaftTerm, read.Header, err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if left, err := cli.TimeToLive(t.Context(), lease.ID); err != nil || left.TTL != -1 {
			t.Errorf("the lease has %v left, %v", left, err)
		}
	})
}

func TestWithoutALeader(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) {
		cli := link.Client()
		lease, err := cli.Grant(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		strict := cli.Watch(clientv3.WithRequireLeader(t.Context()), "k")
		patient := cli.Watch(t.Context(), "k")
		srv.LoseLeader()
		if _, err := cli.Put(t.Context(), "k", ""); err != rpctypes.ErrTimeout {
			t.Errorf("put: %v", err)
		}
		if resp := <-strict; resp.Err() != rpctypes.ErrNoLeader {
			t.Errorf("watch that requires a leader: %+v", resp)
		}
		if _, err := cli.Get(t.Context(), "k", clientv3.WithSerializable()); err != nil {
			t.Errorf("serializable read: %v", err)
		}
		time.Sleep(time.Minute)
		srv.ChangeLeader(0)
		if _, err := cli.Put(t.Context(), "k", "", clientv3.WithLease(lease.ID)); err != nil {
			t.Errorf("leases do not expire without a leader: %v", err)
		}
		if resp := <-patient; len(resp.Events) != 1 {
			t.Errorf("watch: %+v", resp)
		}
	})
}

func TestWatchResumesAfterABrokenConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) {
		events := link.Client().Watch(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		if resp := <-events; !resp.Created {
			t.Fatalf("%+v", resp)
		}
		srv.Put("k1", "")
		<-events
		link.Cut()
		srv.Put("k2", "")
		srv.Put("k3", "")
		link.Heal()
		if resp := <-events; len(resp.Events) != 2 || string(resp.Events[0].Kv.Key) != "k2" {
			t.Errorf("%+v", resp)
		}
		// An idle one starts again from what it saw last.
		srv.Put("other", "")
		srv.Put("other", "")
		srv.Compact()
		link.Reset()
		if resp := <-events; resp.Err() != rpctypes.ErrCompacted || resp.CompactRevision == 0 {
			t.Errorf("after a compaction: %+v", resp)
		}
		if _, open := <-events; open {
			t.Error("the channel is open")
		}
	})
}

func TestEventsThatAreDelayedComeTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) {
		events := link.Client().Watch(t.Context(), "k")
		link.Delay(time.Second)
		start := time.Now()
		for range 3 {
			srv.Put("k", "")
		}
		if resp := <-events; len(resp.Events) != 3 || time.Since(start) != time.Second {
			t.Errorf("%d events after %v", len(resp.Events), time.Since(start))
		}
	})
}

func TestSkipIsTimeForTheServerAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) {
		cli := link.Client()
		lease, err := cli.Grant(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cli.Put(t.Context(), "k", "", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		srv.Skip(9 * time.Second)
		if len(srv.Keys("k")) != 1 {
			t.Error("expired early")
		}
		srv.Skip(time.Second)
		if h := srv.History("k"); len(h) != 2 || h[1].Cause != etcdfake.ByExpiry {
			t.Errorf("history %+v", h)
		}
	})
}
