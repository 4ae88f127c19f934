package etcdfake

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"
)

// watchServer serves watches to clients that open streams themselves. Each watch is created on the member that the
// stream goes to, and ends with the stream.
type watchServer struct {
	pb.UnimplementedWatchServer
	link *Link
	to   *Member
}

// A watchStream is one stream, with its watches. Server.mu protects watches and nextID.
type watchStream struct {
	ctx     context.Context
	link    *Link
	conn    *conn
	out     *mailbox[*pb.WatchResponse]
	failed  chan error // has the error that ends the stream
	watches map[int64]*watch
	nextID  int64
}

func (s *watchServer) Watch(stream pb.Watch_WatchServer) error {
	ctx := outgoing(stream.Context())
	on, err := s.link.connect(ctx, s.to)
	if err != nil {
		return err
	}
	st := &watchStream{
		ctx: ctx, link: s.link, conn: on, out: newMailbox[*pb.WatchResponse](),
		failed: make(chan error, 1), watches: make(map[int64]*watch),
	}
	go st.receive(stream) // ends with the stream, which ends when this method returns
	for {
		resp, ok := st.out.take()
		if ok {
			if err := stream.Send(resp); err != nil {
				return err
			}
			continue
		}
		select {
		case <-st.out.ready:
		case err := <-st.failed:
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-on.broken:
			return errBroken
		case <-s.link.done:
			return errClosing
		}
	}
}

// receive carries out the requests of the client.
func (st *watchStream) receive(stream pb.Watch_WatchServer) {
	for {
		r, err := stream.Recv()
		if err != nil {
			return
		}
		st.link.srv.mu.Lock()
		switch {
		case r.GetCreateRequest() != nil:
			st.create(r.GetCreateRequest())
		case r.GetCancelRequest() != nil:
			st.cancel(r.GetCancelRequest().WatchId)
		case r.GetProgressRequest() != nil:
			st.progress()
		}
		st.link.srv.mu.Unlock()
	}
}

// create sends the request through the link. Events follow when the client has the creation notice.
func (st *watchStream) create(r *pb.WatchCreateRequest) {
	l := st.link
	send(st.ctx, l, st.conn, Call{"Watch", r}, requiresLeader(st.ctx), func() (*watch, error) {
		w := &watch{
			link:        l,
			in:          span{r.Key, r.RangeEnd},
			noPut:       slices.Contains(r.Filters, pb.WatchCreateRequest_NOPUT),
			noDelete:    slices.Contains(r.Filters, pb.WatchCreateRequest_NODELETE),
			prevKV:      r.PrevKv,
			needsLeader: requiresLeader(st.ctx),
			conn:        st.conn,
			out:         newMailbox[*pb.WatchResponse](),
			fail:        st.fail,
		}
		l.srv.create(w, r.StartRevision)
		context.AfterFunc(st.ctx, func() { // the stream may end before the reply arrives
			l.srv.mu.Lock()
			defer l.srv.mu.Unlock()
			l.srv.forget(w)
		})
		return w, nil
	}, func(w *watch, err error) {
		if err != nil {
			st.fail(err)
			return
		}
		id := st.nextID
		st.nextID++
		st.watches[id] = w
		if created, ok := w.out.take(); ok { // at once: notices come in the order of the requests
			created.WatchId = id
			st.out.put(created)
		}
		go st.forward(id, w) // ends with the stream
	})
}

// forward passes the responses of a watch on to the stream.
func (st *watchStream) forward(id int64, w *watch) {
	for {
		resp, ok := w.out.take()
		if ok {
			resp.WatchId = id
			st.out.put(resp)
			continue
		}
		select {
		case <-w.out.ready:
		case <-st.ctx.Done():
			return
		}
	}
}

func (st *watchStream) cancel(id int64) {
	l := st.link
	l.pass(requests, st.conn, func() {
		if w := st.watches[id]; w != nil {
			delete(st.watches, id)
			l.pass(replies, st.conn, func() { l.srv.endWatch(w, &pb.WatchResponse{Canceled: true}) })
		}
	})
}

// progress names the revision up to which all watches of the stream have told everything.
func (st *watchStream) progress() {
	l := st.link
	l.pass(requests, st.conn, func() {
		for _, w := range st.watches {
			if w.behind() {
				return // etcd does not reply either
			}
		}
		l.pass(replies, st.conn, func() {
			all := &watch{link: l, conn: st.conn, out: st.out}
			all.tell(&pb.WatchResponse{WatchId: -1})
		})
	})
}

// fail ends the stream with an error, the first one.
func (st *watchStream) fail(err error) {
	select {
	case st.failed <- err:
	default:
	}
}
