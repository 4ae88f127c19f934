package etcdfake

import (
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch is one watch on the server. It reads the store's log from a revision on, so a watch that is late or that
// resumes after its connection broke needs no code of its own. Server.mu protects it.
type watch struct {
	link        *Link
	in          span
	noPut       bool
	noDelete    bool
	prevKV      bool
	needsLeader bool
	conn        *conn
	out         *mailbox[*pb.WatchResponse]
	stop        func() bool // stops the context.AfterFunc that forgets the watch
	fail        func(error) // ends the stream that it is on; nil if it is one of clientv3's Watcher

	start   int64 // the revision that its creator named; 0: none
	next    int64 // the first revision it has not read
	resume  int64 // where the client would resume: after the last event it received
	sending bool  // a message is in flight; it will have all events up to its arrival
}

// wake tells a watch of new changes.
func (w *watch) wake(changes []Change) {
	if !w.sending && !slices.ContainsFunc(changes, w.wants) {
		w.next = max(w.next, w.conn.to.applied+1)
		return
	}
	w.look()
}

// look sends the events since next, unless a message is already in flight.
func (w *watch) look() {
	if w.sending {
		return
	}
	w.sending = true
	fate := w.link.fate(Call{Method: "Watch"})
	w.link.after(fate.Reply, func() { w.link.pass(replies, w.conn, w.deliver) })
}

// deliver hands the client all events up to now in one response.
func (w *watch) deliver() {
	w.sending = false
	s := w.link.srv
	if !slices.Contains(s.watches, w) {
		return // the watch has ended
	}
	if w.next < s.compacted {
		s.endWatch(w, &pb.WatchResponse{CompactRevision: s.compacted, Canceled: true})
		return
	}
	var events []*mvccpb.Event
	for _, c := range s.between(w.next, w.conn.to.applied) {
		if !w.wants(c) {
			continue
		}
		ev := &mvccpb.Event{Type: clientv3.EventTypePut, Kv: clone(c.Kv)}
		if c.Deleted {
			ev.Type = clientv3.EventTypeDelete
		}
		if w.prevKV && c.Revision-1 >= s.compacted && (c.Deleted || c.Kv.CreateRevision < c.Revision) {
			ev.PrevKv = clone(s.version(string(c.Kv.Key), c.Revision-1)) // not an earlier put of the same Txn
		}
		events = append(events, ev)
	}
	w.next = max(w.next, w.conn.to.applied+1)
	if len(events) > 0 {
		w.resume = events[len(events)-1].Kv.ModRevision + 1
		w.tell(&pb.WatchResponse{Events: events})
	}
}

// wants reports whether a change is an event for the watch.
func (w *watch) wants(c Change) bool {
	return c.Revision >= w.next && w.in.contains(c.Kv.Key) && !(c.Deleted && w.noDelete) && !(!c.Deleted && w.noPut)
}

// create registers a watch from a revision on; 0 is now.
func (s *Server) create(w *watch, start int64) {
	switch {
	case start < 0:
		w.tell(&pb.WatchResponse{Created: true, Canceled: true, CancelReason: rpctypes.ErrCompacted.Error()})
		return
	case start == 0:
		w.next, w.resume = w.conn.to.applied+1, w.conn.to.applied+1
	default:
		w.start, w.next, w.resume = start, start, start
	}
	s.watches = append(s.watches, w)
	w.tell(&pb.WatchResponse{Created: true})
	if w.next <= w.conn.to.applied {
		w.look()
	}
}

// behind reports whether the watch keeps etcd from telling how far the stream is: events are on their way, or it begins
// in the future.
func (w *watch) behind() bool { return w.sending || w.start > w.conn.to.applied }

// tell hands the client a response.
func (w *watch) tell(resp *pb.WatchResponse) {
	resp.Header = w.link.srv.header(w.conn.to.applied)
	if resp.CompactRevision > 0 {
		resp.Header.Revision = 0 // as etcd has it
	}
	w.conn.to.signs(resp)
	w.out.put(resp)
}

// endWatch ends a watch with its last response.
func (s *Server) endWatch(w *watch, last *pb.WatchResponse) {
	s.forget(w)
	w.tell(last)
}

func (s *Server) forget(w *watch) {
	// A caller may range over the watches.
	s.watches = slices.DeleteFunc(slices.Clone(s.watches), func(other *watch) bool { return other == w })
}

func (s *Server) cancelWatches(reason error, which func(*watch) bool) {
	for _, w := range s.watches {
		if which(w) {
			w.link.pass(replies, w.conn, func() {
				if w.fail != nil && errors.Is(reason, rpctypes.ErrNoLeader) { // which ends the stream
					s.forget(w)
					w.fail(rpctypes.ErrGRPCNoLeader)
					return
				}
				s.endWatch(w, &pb.WatchResponse{Canceled: true, CancelReason: reason.Error()})
			})
		}
	}
}

// resume moves the watches of broken connections to the next member, as clientv3 does: each resumes after the last
// event that it received.
func (l *Link) resume() {
	for _, w := range l.srv.watches {
		if w.link != l || w.fail != nil || !w.conn.isBroken() {
			continue
		}
		w.conn, w.next, w.sending = l.toNext(), w.resume, false
		w.look()
	}
}
