package etcdfake

import (
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch is one watch at the server, and what is on its way to the client. It
// reads the store's log rather than being told events, so that one that is
// late, or comes back after its connection broke, is not a case of its own.
// Protected by Server.mu.
type watch struct {
	link        *Link
	in          span
	noPut       bool
	noDelete    bool
	prevKV      bool
	needsLeader bool
	conn        chan struct{}
	out         *mailbox[clientv3.WatchResponse]
	stop        func() bool // takes back what was to happen at the end of its context

	next    int64 // the first revision that was not looked at
	resume  int64 // where the client would start again: after the last it was told
	sending bool  // events are on their way, with all that happens until they arrive
}

// wake has a watch look at changes that were made just now.
func (w *watch) wake(changes []Change) {
	if !w.sending && !slices.ContainsFunc(changes, w.wants) {
		w.next = max(w.next, w.link.srv.rev+1)
		return
	}
	w.look()
}

// look sends what has happened since, unless that is being done.
func (w *watch) look() {
	if w.sending {
		return
	}
	w.sending = true
	fate := w.link.fate(Call{Method: "Watch"})
	w.link.after(fate.Reply, func() { w.link.pass(replies, w.conn, w.tell) })
}

// tell puts before the client what has happened up to now, in one response.
func (w *watch) tell() {
	w.sending = false
	s := w.link.srv
	if !slices.Contains(s.watches, w) {
		return // it has ended
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
			ev.PrevKv = clone(s.version(string(c.Kv.Key), c.Revision-1)) // not what the same Txn put before
		}
		events = append(events, ev)
	}
	w.next = max(w.next, s.rev+1)
	if len(events) > 0 {
		w.resume = events[len(events)-1].Kv.ModRevision + 1
		w.out.put(withHeader(s.header(0), clientv3.WatchResponse{Events: events}))
	}
}

// wants reports whether the watch is to be told a change. Every revision of
// the store has changes, so a watch that starts later skips by revision.
func (w *watch) wants(c Change) bool {
	return c.Revision >= w.next && w.in.contains(c.Kv.Key) && !(c.Deleted && w.noDelete) && !(!c.Deleted && w.noPut)
}

// create registers a watch that starts at a revision; 0 is now.
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

// endWatch sends a watch its last response.
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

// resume is what clientv3 does with the watches of a broken connection when it
// has another: it starts them again after the last event it was told of.
func (l *Link) resume() {
	for _, w := range slices.Clone(l.srv.watches) {
		if w.link != l {
			continue
		}
		w.conn, w.next, w.sending = l.broken, w.resume, false
		w.look()
	}
}
