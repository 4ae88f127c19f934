package etcdfake

import (
	"slices"

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
	conn        chan struct{}
	out         *mailbox[clientv3.WatchResponse]
	stop        func() bool // stops the context.AfterFunc that forgets the watch

	next    int64 // the first revision it has not read
	resume  int64 // where the client would resume: after the last event it received
	sending bool  // a message is in flight; it will have all events up to its arrival
}

// wake tells a watch of new changes.
func (w *watch) wake(changes []Change) {
	if !w.sending && !slices.ContainsFunc(changes, w.wants) {
		w.next = max(w.next, w.link.srv.rev+1)
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
		s.endWatch(w, withHeader(s.header(0), clientv3.WatchResponse{CompactRevision: s.compacted, Canceled: true}))
		return
	}
	var events []*clientv3.Event
	for _, c := range s.since(w.next) {
		if !w.wants(c) {
			continue
		}
		ev := &clientv3.Event{Type: clientv3.EventTypePut, Kv: clone(c.Kv)}
		if c.Deleted {
			ev.Type = clientv3.EventTypeDelete
		}
		if w.prevKV && c.Revision-1 >= s.compacted && (c.Deleted || c.Kv.CreateRevision < c.Revision) {
			ev.PrevKv = clone(s.version(string(c.Kv.Key), c.Revision-1)) // not an earlier put of the same Txn
		}
		events = append(events, ev)
	}
	w.next = max(w.next, s.rev+1)
	if len(events) > 0 {
		w.resume = events[len(events)-1].Kv.ModRevision + 1
		w.out.put(withHeader(s.header(0), clientv3.WatchResponse{Events: events}))
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
		refused := canceled(rpctypes.ErrCompacted.Error())
		refused.Created = true
		w.out.put(withHeader(s.header(0), refused))
		return
	case start == 0:
		w.next, w.resume = s.rev+1, s.rev+1
	default:
		w.next, w.resume = start, start
	}
	s.watches = append(s.watches, w)
	w.out.put(withHeader(s.header(0), clientv3.WatchResponse{Created: true}))
	if w.next <= s.rev {
		w.look()
	}
}

// endWatch ends a watch with its last response.
func (s *Server) endWatch(w *watch, last clientv3.WatchResponse) {
	s.forget(w)
	w.out.put(last)
}

func (s *Server) forget(w *watch) {
	s.watches = slices.DeleteFunc(s.watches, func(other *watch) bool { return other == w })
}

func (s *Server) cancelWatches(reason error, which func(*watch) bool) {
	for _, w := range slices.Clone(s.watches) {
		if which(w) {
			last := canceled(reason.Error())
			w.link.pass(replies, w.conn, func() { s.endWatch(w, last) })
		}
	}
}

// resume moves the watches of a broken connection to the next one, as clientv3 does: each resumes after the last event
// that it received.
func (l *Link) resume() {
	for _, w := range slices.Clone(l.srv.watches) {
		if w.link != l {
			continue
		}
		w.conn, w.next, w.sending = l.broken, w.resume, false
		w.look()
	}
}
