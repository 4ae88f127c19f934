package etcdfake_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/fakedial"
)

// three runs f in virtual time with a cluster of three members, and a link to it: with clients that have a connection
// to each member, and with those that have none.
func three(t *testing.T, f func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, dial dialer)) {
	t.Helper()
	for name, dial := range map[string]dialer{"over gRPC": dialed, "directly": direct} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				srv := etcdfake.New(etcdfake.Options{Members: 3})
				t.Cleanup(srv.Close)
				f(t, srv, srv.Link(), dial)
			})
		})
	}
}

type dialer func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) *clientv3.Client

func dialed(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) *clientv3.Client {
	t.Helper()
	cli := fakedial.Dial(t, link, srv.Members())
	cli.Watcher = link.Client().Watcher
	cli.ActiveConnection().Connect()
	synctest.Wait() // connected to each member
	return cli
}

func direct(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link) *clientv3.Client {
	t.Helper()
	cli := fakedial.Direct(link, srv.Members())
	conn := cli.ActiveConnection()
	cli.KV = clientv3.NewKVFromKVClient(pb.NewKVClient(conn), cli)
	cli.Lease = clientv3.NewLeaseFromLeaseClient(pb.NewLeaseClient(conn), cli, time.Second)
	cli.Cluster = clientv3.NewClusterFromClusterClient(pb.NewClusterClient(conn), cli)
	cli.Watcher = link.Client().Watcher
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

func ids(members []*etcdfake.Member) (all []uint64) {
	for _, m := range members {
		all = append(all, m.ID())
	}
	slices.Sort(all)
	return all
}

// openStreams opens streams on n members, and creates a watch of "k" on each. It returns them by member. Round robin
// may go to a member that has one: that stream is given up.
func openStreams(ctx context.Context, t *testing.T, cli *clientv3.Client, n int) map[uint64]pb.Watch_WatchClient {
	t.Helper()
	streams := make(map[uint64]pb.Watch_WatchClient)
	for range 10 * n {
		ctx, giveUp := context.WithCancel(ctx)
		t.Cleanup(giveUp)
		stream, err := pb.NewWatchClient(cli.ActiveConnection()).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		create(t, stream, &pb.WatchCreateRequest{Key: []byte("k")})
		resp := receive(t, stream)
		if streams[resp.Header.MemberId] != nil {
			giveUp()
			continue
		}
		if !resp.Created {
			t.Fatalf("want a creation notice, got %v", resp)
		}
		streams[resp.Header.MemberId] = stream
		if len(streams) == n {
			synctest.Wait()
			return streams
		}
	}
	t.Fatalf("streams to %d members only, want %d", len(streams), n)
	return nil
}

func create(t *testing.T, stream pb.Watch_WatchClient, r *pb.WatchCreateRequest) {
	t.Helper()
	request := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
	if err := stream.Send(request); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, stream pb.Watch_WatchClient) *pb.WatchResponse {
	t.Helper()
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestClientFindsAllMembersAndGoesToEachInTurn(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, dial dialer) {
		for name, cli := range map[string]*clientv3.Client{"in memory": link.Client(), "over gRPC": dial(t, srv, link)} {
			resp, err := cli.MemberList(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var listed, answered []uint64
			for _, m := range resp.Members {
				listed = append(listed, m.ID)
				read, err := cli.Get(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				answered = append(answered, read.Header.MemberId)
			}
			slices.Sort(answered)
			if want := ids(srv.Members()); !slices.Equal(listed, want) || !slices.Equal(answered, want) {
				t.Errorf("%s: listed %x, answered by %x, want %x", name, listed, answered, want)
			}
		}
	})
}

func TestMemberThatLagsTellsAndRepliesLate(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, dial dialer) {
		cli := dial(t, srv, link)
		streams := openStreams(t.Context(), t, cli, 3)
		lagging := srv.Members()[1]
		lagging.Lag(time.Minute)
		start := time.Now()
		srv.Put("k", "")
		for _, n := range []int{0, 2, 1} {
			resp := receive(t, streams[srv.Members()[n].ID()])
			want := map[bool]time.Duration{true: time.Minute}[n == 1]
			if took := time.Since(start); took != want || len(resp.Events) != 1 {
				t.Errorf("member %d tells %v after %v", n, resp, took)
			}
		}

		start = time.Now()
		replied := make(map[uint64]time.Duration)
		srv.Put("other", "")
		for range 3 {
			resp, err := cli.Get(t.Context(), "other")
			if err != nil || len(resp.Kvs) != 1 {
				t.Fatalf("%v, %v", resp, err)
			}
			replied[resp.Header.MemberId] = time.Since(start)
			start = time.Now()
		}
		if took := replied[lagging.ID()]; took != time.Minute {
			t.Errorf("replies by member after %v", replied)
		}

		start = time.Now()
		srv.Put("k", "first")
		time.Sleep(40 * time.Second)
		srv.Put("k", "second")
		for n, want := range []time.Duration{time.Minute, 100 * time.Second} {
			resp := receive(t, streams[lagging.ID()])
			if took := time.Since(start); len(resp.Events) != 1 || took != want {
				t.Errorf("change %d: %v after %v", n+1, resp, took)
			}
		}

		srv.Put("k", "")
		lagging.Lag(0)
		start = time.Now()
		if resp := receive(t, streams[lagging.ID()]); len(resp.Events) != 1 || time.Since(start) != 0 {
			t.Errorf("after the lag: %v after %v", resp, time.Since(start))
		}
	})
}

func TestMemberThatHangsRepliesNothingUntilItGoesOn(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, dial dialer) {
		cli := dial(t, srv, link)
		streams := openStreams(t.Context(), t, cli, 3)
		hung := srv.Members()[2]
		hung.Hang()
		failed := 0
		for range 3 {
			_, err := cli.Get(soon(t, time.Second), "k")
			if errors.Is(err, context.DeadlineExceeded) {
				failed++
			} else if err != nil {
				t.Error(err)
			}
		}
		if failed != 1 {
			t.Errorf("%d of three requests were not answered", failed)
		}
		srv.Put("k", "1")
		for _, m := range srv.Members()[:2] {
			receive(t, streams[m.ID()])
		}
		time.AfterFunc(time.Hour, hung.Resume)
		start := time.Now()
		if resp := receive(t, streams[hung.ID()]); len(resp.Events) != 1 || time.Since(start) != time.Hour {
			t.Errorf("%v after %v", resp, time.Since(start))
		}
	})
}

func TestMemberCanBeHiddenFromOneClientOnly(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, dial dialer) {
		streams := openStreams(t.Context(), t, dial(t, srv, link), 3)
		others := openStreams(t.Context(), t, dial(t, srv, srv.Link()), 3)
		hidden := srv.Members()[0].ID()
		link.BlackHoleMember(srv.Members()[0])
		srv.Put("k", "")
		start := time.Now()
		for id, stream := range streams {
			receive(t, others[id])
			if id != hidden {
				receive(t, stream)
			}
		}
		if time.Since(start) != 0 {
			t.Errorf("told after %v", time.Since(start))
		}
		time.AfterFunc(time.Hour, link.Heal)
		if resp := receive(t, streams[hidden]); len(resp.Events) != 1 || time.Since(start) != time.Hour {
			t.Errorf("%v after %v", resp, time.Since(start))
		}
	})
}

// A request that was held is served, and its event is for a member that is still hidden.
func TestHealingOneMemberLosesNothingOfAnother(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, dial dialer) {
		streams := openStreams(t.Context(), t, dial(t, srv, link), 3)
		cli := link.Client()
		for range 3 { // the next request goes to the first member
			resp, err := cli.Get(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if resp.Header.MemberId == srv.Members()[2].ID() {
				break
			}
		}
		first, second := srv.Members()[0], srv.Members()[1]
		link.BlackHoleMember(first)
		link.BlackHoleMember(second)
		put := make(chan uint64, 1)
		go func() {
			resp, err := cli.Put(t.Context(), "k", "")
			if err != nil {
				t.Error(err)
			}
			put <- resp.Header.MemberId
		}()
		synctest.Wait()
		link.HealMember(first)
		if id := <-put; id != first.ID() {
			t.Fatalf("the put went to member %x: this tests nothing", id)
		}
		link.Heal()
		if resp := receive(t, streams[second.ID()]); len(resp.Events) != 1 {
			t.Errorf("%v", resp)
		}
	})
}

func TestWatchesOfAMemberThatGoesOnAfterACompactionAreAllTold(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, _ dialer) {
		var watches []clientv3.WatchChan
		for range 9 {
			watches = append(watches, link.Client().Watch(t.Context(), "k", clientv3.WithCreatedNotify()))
		}
		synctest.Wait()
		hung := srv.Members()[0]
		if n := hung.Watches(); n < 2 {
			t.Fatalf("%d watches: this tests nothing", n)
		}
		hung.Hang()
		srv.Put("k", "1")
		srv.Put("k", "2")
		srv.Compact()
		hung.Resume()
		for _, watch := range watches {
			<-watch // it is created
			if resp, ok := <-watch; !ok || len(resp.Events) == 0 && resp.CompactRevision == 0 {
				t.Errorf("%+v", resp)
			}
		}
	})
}

func TestResetMovesWatchesOfTheWatcherAndEndsStreams(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, dial dialer) {
		streams := openStreams(t.Context(), t, dial(t, srv, link), 3)
		events := link.Client().Watch(t.Context(), "k", clientv3.WithCreatedNotify())
		others := link.Client().Watch(t.Context(), "k", clientv3.WithCreatedNotify())
		first, second := (<-events).Header.MemberId, (<-others).Header.MemberId
		at := slices.IndexFunc(srv.Members(), func(m *etcdfake.Member) bool { return m.ID() == first })
		m := srv.Members()[at]
		if n := m.Watches(); n != 2 {
			t.Errorf("%d watches before", n)
		}
		m.Reset()
		elsewhere := 0
		for i, other := range srv.Members() {
			if i != at {
				elsewhere += other.Watches()
			}
		}
		if elsewhere != 4 {
			t.Errorf("%d watches on the other members: those of three that stay, and one that moved", elsewhere)
		}
		if _, err := streams[first].Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ends with %v", err)
		}
		srv.Put("k", "")
		if resp := <-events; len(resp.Events) != 1 || resp.Header.MemberId == first {
			t.Errorf("the watch was on %x, and now: %+v", first, resp)
		}
		if resp := <-others; len(resp.Events) != 1 || resp.Header.MemberId != second {
			t.Errorf("a watch on %x, which was not reset: %+v", second, resp)
		}
		synctest.Wait()
		if n := m.Watches(); n != 0 {
			t.Errorf("%d watches are still on the member", n)
		}
	})
}

func TestStreamHasSeveralWatchesUntilEachIsCanceled(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, dial dialer) {
		cli := dial(t, srv, link)
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := pb.NewWatchClient(cli.ActiveConnection()).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		srv.Put("b", "1")
		create(t, stream, &pb.WatchCreateRequest{Key: []byte("a"), Filters: []pb.WatchCreateRequest_FilterType{
			pb.WatchCreateRequest_NOPUT,
		}})
		create(t, stream, &pb.WatchCreateRequest{Key: []byte("b"), PrevKv: true, StartRevision: 1})
		for id := range int64(2) {
			if resp := receive(t, stream); !resp.Created || resp.WatchId != id {
				t.Errorf("%v", resp)
			}
		}
		if resp := receive(t, stream); resp.WatchId != 1 || len(resp.Events) != 1 {
			t.Errorf("what is past: %v", resp)
		}
		srv.Put("a", "1")
		srv.Delete("a")
		if resp := receive(t, stream); resp.WatchId != 0 || resp.Events[0].Type != mvccpb.DELETE {
			t.Errorf("the filtered watch: %v", resp)
		}
		srv.Put("b", "2")
		if resp := receive(t, stream); resp.WatchId != 1 || string(resp.Events[0].PrevKv.Value) != "1" {
			t.Errorf("the watch with the previous value: %v", resp)
		}
		progress := &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}
		if err := stream.Send(&pb.WatchRequest{RequestUnion: progress}); err != nil {
			t.Fatal(err)
		}
		if resp := receive(t, stream); resp.WatchId != -1 || resp.Header.Revision != 5 || len(resp.Events) > 0 {
			t.Errorf("progress: %v", resp)
		}
		end := &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 0}}
		if err := stream.Send(&pb.WatchRequest{RequestUnion: end}); err != nil {
			t.Fatal(err)
		}
		if resp := receive(t, stream); resp.WatchId != 0 || !resp.Canceled {
			t.Errorf("canceled: %v", resp)
		}
		cancel()
		synctest.Wait()
		for _, m := range srv.Members() {
			if m.Watches() != 0 {
				t.Error("watches outlive their stream")
			}
		}
	})
}

func TestStreamThatRequiresALeaderEndsWithoutOne(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, dial dialer) {
		cli := dial(t, srv, link)
		strict := openStreams(clientv3.WithRequireLeader(t.Context()), t, cli, 1)
		patient := openStreams(t.Context(), t, cli, 1)
		start := time.Now()
		srv.LoseLeader()
		for _, stream := range strict {
			_, err := stream.Recv()
			if !errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader) || time.Since(start) != 3*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		}
		srv.ChangeLeader(0)
		srv.Put("k", "")
		for _, stream := range patient {
			receive(t, stream)
		}
	})
}
