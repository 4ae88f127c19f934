package watching

import (
	"context"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// A member is a member of etcd that creates watches when it is let. It keeps a watch until that is canceled or its
// stream ends, as etcd does. etcd's own client is in front of it, in the version that the module is built with.
type member struct {
	let chan struct{} // closed: watches are created

	mu      sync.Mutex // protects what follows
	asked   int        // requests to create a watch
	streams int
	watches int
}

func newMember(t *testing.T) (*member, *clientv3.Client) {
	m := &member{let: make(chan struct{})}
	cli := clientv3.NewCtxClient(t.Context())
	cli.Watcher = clientv3.NewWatchFromWatchClient(m, cli)
	t.Cleanup(func() { cli.Watcher.Close() })
	return m, cli
}

func (m *member) Watch(ctx context.Context, _ ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	s := &memberStream{of: m, ctx: ctx, answers: make(chan *pb.WatchResponse, 100), watches: make(map[int64]bool)}
	m.change(func() { m.streams++ })
	context.AfterFunc(ctx, func() {
		m.change(func() { m.streams, m.watches = m.streams-1, m.watches-len(s.watches) })
	})
	return s, nil
}

func (m *member) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// await waits until the member has had so many requests, and has so many streams and watches.
func (m *member) await(t *testing.T, asked, streams, watches int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(10 * time.Second); ; {
		var have [3]int
		m.change(func() { have = [3]int{m.asked, m.streams, m.watches} })
		if have == [3]int{asked, streams, watches} {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%v requests, streams and watches, want %v", have, []int{asked, streams, watches})
		}
	}
}

type memberStream struct {
	grpc.ClientStream
	of      *member
	ctx     context.Context
	answers chan *pb.WatchResponse
	next    int64          // number of the next watch; etcd's client has one request at a time
	watches map[int64]bool // protected by of.mu
}

func (s *memberStream) Send(r *pb.WatchRequest) error {
	if cancel := r.GetCancelRequest(); cancel != nil {
		s.of.change(func() {
			if s.watches[cancel.WatchId] {
				delete(s.watches, cancel.WatchId)
				s.of.watches--
			}
		})
		s.answers <- &pb.WatchResponse{Header: &pb.ResponseHeader{}, WatchId: cancel.WatchId, Canceled: true}
		return nil
	}
	id := s.next
	s.next++
	s.of.change(func() { s.of.asked++ })
	go func() { // ends with the stream
		select {
		case <-s.of.let:
		case <-s.ctx.Done():
			return
		}
		s.of.change(func() {
			if s.ctx.Err() == nil {
				s.watches[id] = true
				s.of.watches++
			}
		})
		s.answers <- &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 1}, WatchId: id, Created: true}
	}()
	return nil
}

func (s *memberStream) Recv() (*pb.WatchResponse, error) {
	select {
	case answer := <-s.answers:
		return answer, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *memberStream) CloseSend() error { return nil }

// etcd's client drops what etcd says of a watch that was canceled before. Nothing would cancel that watch in etcd.
func TestWatchThatIsGivenUpBeforeItStandsLeavesNothing(t *testing.T) {
	for name, giveUp := range map[string]func(cancel, closeSession func()){
		"by its caller":              func(cancel, _ func()) { cancel() },
		"by the end of the session":  func(_, closeSession func()) { closeSession() },
		"because etcd takes so long": func(_, _ func()) {},
	} {
		t.Run(name, func(t *testing.T) {
			m, cli := newMember(t)
			var s Streams
			ctx, cancel := context.WithCancel(t.Context())
			session, closeSession := context.WithCancel(t.Context())
			within := time.Hour
			if name == "because etcd takes so long" {
				within = time.Second / 2
			}
			const streams = 3
			var callers sync.WaitGroup
			for range streams * armingPerStream {
				st, _ := s.Pick()
				callers.Go(func() {
					if _, err := st.Arm(ctx, Request{Client: cli, Open: session, Key: "x", Within: within}); err == nil {
						t.Error("a watch stands that was not created")
					}
				})
			}
			m.await(t, streams, streams, 0)
			giveUp(cancel, closeSession)
			callers.Wait()
			closeSession()
			cancel()
			close(m.let)
			m.await(t, streams, 0, 0)
		})
	}
}

// The stream stays with its other watches, and etcd has those alone.
func TestWatchThatIsGivenUpIsCanceledOnAStreamThatStays(t *testing.T) {
	m, cli := newMember(t)
	close(m.let)
	var s Streams
	st, _ := s.Pick()
	stays, err := st.Arm(t.Context(), Request{Client: cli, Open: t.Context(), Key: "x", Within: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	m.let = make(chan struct{})
	// However often callers come again, a stream that hangs has one request.
	for range 20 {
		r := Request{Client: cli, Open: t.Context(), Key: "x", Within: 5 * time.Millisecond}
		if _, err := st.Arm(t.Context(), r); err == nil {
			t.Error("a watch stands that was not created")
		}
	}
	m.await(t, 2, 1, 1)
	close(m.let)
	m.await(t, 2, 1, 1)
	next, err := st.Arm(t.Context(), Request{Client: cli, Open: t.Context(), Key: "x", Within: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	m.await(t, 3, 1, 2)
	next.Close()
	m.await(t, 3, 1, 1)
	stays.Close()
	m.await(t, 3, 0, 0)
}
