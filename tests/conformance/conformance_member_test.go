package conformance_test

import (
	"context"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testkit/fakedial"
)

// cluster is one of three members, the fake or etcd, with a client whose streams go to each in turn.
type cluster struct {
	cli *clientv3.Client
	// One member falls behind the others, and then catches up.
	behind  func() (member uint64)
	catchUp func()
}

func startFake(t *testing.T) *cluster {
	srv := etcdfake.New(&etcdfake.Options{Members: 3})
	t.Cleanup(srv.Close)
	m := srv.Members()[2]
	return &cluster{
		cli:     fakedial.Dial(t, srv.Link(), srv.Members()),
		behind:  func() uint64 { m.Lag(time.Hour); return m.ID() },
		catchUp: func() { m.Lag(0) },
	}
}

func startReal(t *testing.T) *cluster {
	c := etcdtest.StartCluster(t, 3)
	return &cluster{
		cli: c.Client(t),
		behind: func() uint64 {
			leader, err := c.Leader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			follower := c.Members()[0]
			if follower == leader {
				follower = c.Members()[1]
			}
			c.Partition(follower)
			status, err := follower.Client(t).Status(t.Context(), follower.Endpoints()[0])
			if err != nil {
				t.Fatal(err)
			}
			return status.Header.MemberId
		},
		catchUp: c.Heal,
	}
}

// stream is one of watches, on the member that it went to.
type stream struct {
	pb.Watch_WatchClient
	t      *testing.T
	member uint64
}

func (s *stream) create(r *pb.WatchCreateRequest) {
	s.t.Helper()
	s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
}

func (s *stream) send(r *pb.WatchRequest) {
	s.t.Helper()
	if err := s.Send(r); err != nil {
		s.t.Fatal(err)
	}
}

// next returns the next response, and checks which member has sent it.
func (s *stream) next() *pb.WatchResponse {
	s.t.Helper()
	resp, err := s.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	if s.member != 0 && resp.Header.MemberId != s.member {
		s.t.Errorf("a stream to %x has a response of %x", s.member, resp.Header.MemberId)
	}
	s.member = resp.Header.MemberId
	return resp
}

// told is next as text, without the IDs.
func (s *stream) told() string {
	s.t.Helper()
	resp := s.next()
	resp.Header.ClusterId, resp.Header.MemberId, resp.Header.RaftTerm = 0, 0, 0
	return prototext.MarshalOptions{}.Format(resp)
}

func (c *cluster) open(t *testing.T) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	raw, err := pb.NewWatchClient(c.cli.ActiveConnection()).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &stream{Watch_WatchClient: raw, t: t}
}

// onEach opens streams until there is one on each member, with a watch of "k".
func (c *cluster) onEach(t *testing.T) map[uint64]*stream {
	t.Helper()
	streams := make(map[uint64]*stream)
	for len(streams) < 3 {
		s := c.open(t)
		s.create(&pb.WatchCreateRequest{Key: []byte("k")})
		if resp := s.next(); !resp.Created || resp.WatchId != 0 {
			t.Fatalf("%v", resp)
		}
		streams[s.member] = s
	}
	return streams
}

func (c *cluster) put(t *testing.T, key, value string) {
	t.Helper()
	if _, err := c.cli.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func onBoth(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Run("fake", func(t *testing.T) { f(t, startFake(t)) })
	t.Run("etcd", func(t *testing.T) { f(t, startReal(t)) })
}

func TestMembersAreListedAsInEtcd(t *testing.T) {
	onBoth(t, func(t *testing.T, c *cluster) {
		resp, err := c.cli.MemberList(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ids []uint64
		var names []string
		for _, m := range resp.Members {
			ids, names = append(ids, m.ID), append(names, m.Name)
			if m.IsLearner || len(m.ClientURLs) == 0 || len(m.PeerURLs) == 0 {
				t.Errorf("%v", m)
			}
		}
		slices.Sort(names)
		if len(ids) != 3 || len(slices.Compact(names)) != 3 || names[0] == "" {
			t.Errorf("%v", resp.Members)
		}
		if h := resp.Header; !slices.Contains(ids, h.MemberId) || h.Revision != 0 {
			t.Errorf("header %v", h)
		}
		for member := range c.onEach(t) {
			if !slices.Contains(ids, member) {
				t.Errorf("%x has a watch, and is none of %x", member, ids)
			}
		}
	})
}

func TestStreamsOfWatchesReplyAsInEtcd(t *testing.T) {
	sides := [2]*cluster{startFake(t), startReal(t)}
	var told [2][]string
	for i, c := range sides {
		s := c.open(t)
		record := func(n int) {
			t.Helper()
			for range n {
				told[i] = append(told[i], s.told())
			}
		}
		s.create(&pb.WatchCreateRequest{Key: []byte("a"), PrevKv: true})
		record(1)
		c.put(t, "a", "1")
		c.put(t, "a", "2")
		record(2) // so the member has applied both
		s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2})
		record(2)
		s.create(&pb.WatchCreateRequest{Key: []byte("b"), Filters: []pb.WatchCreateRequest_FilterType{
			pb.WatchCreateRequest_NOPUT,
		}})
		record(1)
		c.put(t, "b", "1")
		if _, err := c.cli.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		record(1)
		s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
			CancelRequest: &pb.WatchCancelRequest{WatchId: 1},
		}})
		record(1)
		c.put(t, "a", "3")
		record(1)
		s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{
			ProgressRequest: &pb.WatchProgressRequest{},
		}})
		record(1)
		if _, err := c.cli.Compact(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2})
		record(2)
	}
	for n := range told[0] {
		if told[0][n] != told[1][n] {
			t.Errorf("response %d\nfake: %s\netcd: %s", n, told[0][n], told[1][n])
		}
	}
}

// A member that has not applied a change tells nothing of it, and answers no linearizable read, while the others do.
func TestMemberThatIsBehindTellsLateAsInEtcd(t *testing.T) {
	onBoth(t, func(t *testing.T, c *cluster) {
		streams := c.onEach(t)
		late := c.behind()
		if streams[late] == nil {
			t.Fatalf("no stream to %x: %v", late, streams)
		}
		silent := make(chan string, 1)
		go func() { silent <- streams[late].told() }() // joined below
		write := func() {                              // a copy may go to the member that is behind
			for {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err := c.cli.Put(ctx, "k", "v")
				cancel()
				if err == nil {
					return
				}
			}
		}
		write()
		for member, s := range streams {
			if member != late {
				if resp := s.next(); len(resp.Events) == 0 || string(resp.Events[0].Kv.Key) != "k" {
					t.Errorf("%v", resp)
				}
			}
		}
		const reads = 6
		answered := 0
		for range reads {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			resp, err := c.cli.Get(ctx, "k")
			cancel()
			if err != nil {
				continue
			}
			if answered++; len(resp.Kvs) != 1 || resp.Header.MemberId == late {
				t.Errorf("%v", resp)
			}
		}
		if answered == 0 || answered == reads {
			t.Errorf("%d of %d reads were answered, want those that go to the others", answered, reads)
		}
		select {
		case resp := <-silent:
			t.Errorf("the member that is behind has told: %s", resp)
		default:
		}
		c.catchUp()
		<-silent
	})
}
