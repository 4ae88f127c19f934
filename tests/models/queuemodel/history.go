package queuemodel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A history is a record in the form in which entries are followed.
type history struct {
	entries []*lived            // in order of their puts
	queues  map[string][]*lived // those that stand, by prefix
	keys    map[int64][]keyChange
	gates   map[string][]int64      // what puts of a key have compared
	steps   map[string][]queue.Step // but for Sends, by the id of an entry
}

// A keyChange is a put or a deletion of a session key.
type keyChange struct {
	at      int64
	deleted bool
}

// A lived is an entry of a lock from its put to its deletion. Its key may be that of others before and after.
type lived struct {
	oracle.Part
	key       string
	permit    bool
	session   int64 // the lease that its key names
	owner     string
	created   int64
	gone      int64 // 0: it stands
	byRequest bool  // its session has deleted it
	movedAt   int64 // when it was put on another lease first, or 0
	noticedAt int64 // when an administrator wrote into it first, or 0

	ahead    []*lived // those that it waits for, when it was put
	follows  *lived   // the entry that waited, of its session, in whose place it was put; or nil
	held     bool
	requeued bool // its session has lost a lease since the call began
}

func (e *lived) id() string     { return idOf(e.key, e.created) }
func (e *lived) String() string { return fmt.Sprintf("%s (put at %d)", e.key, e.created) }

func idOf(key string, created int64) string { return fmt.Sprint(key, " ", created) }

func newHistory(record *oracle.Record, steps []queue.Step) *history {
	changes := record.Changes
	h := &history{
		queues: make(map[string][]*lived), keys: make(map[int64][]keyChange), gates: make(map[string][]int64),
		steps: make(map[string][]queue.Step),
	}
	for _, s := range steps {
		if s.Action == queue.Sends {
			h.gates[s.Key] = append(h.gates[s.Key], s.Gate)
		} else {
			id := idOf(s.Key, s.Created)
			h.steps[id] = append(h.steps[id], s)
		}
	}
	for from := 0; from < len(changes); {
		to := from
		for to < len(changes) && changes[to].Revision == changes[from].Revision {
			to++
		}
		h.add(changes[from:to])
		from = to
	}
	h.findRequeued(record.Wanted)
	return h
}

// add adds the changes of one revision: what is deleted first.
func (h *history) add(changes []oracle.Change) {
	left := make(map[string]*lived) // by queue and session: entries that were deleted by a request of their sessions
	queueOf := func(e *lived) string { return idOf(e.Prefix, e.session) }
	for _, c := range changes {
		key := string(c.Kv.Key)
		if lease, is := sessionOf(key); is {
			h.keys[lease] = append(h.keys[lease], keyChange{c.Revision, c.Deleted})
		}
		if e := h.standing(key); e != nil && c.Deleted {
			e.gone = c.Revision
			if e.byRequest = c.Cause == oracle.ByRequest && e.movedAt == 0; e.byRequest {
				left[queueOf(e)] = e
			}
			h.queues[e.Prefix] = slices.DeleteFunc(h.queues[e.Prefix], func(o *lived) bool { return o == e })
		}
	}
	var put []*lived
	for _, c := range changes {
		key := string(c.Kv.Key)
		e := h.standing(key)
		v, _ := layout.DecodeValue(c.Kv.Value)
		switch {
		case c.Deleted || !oracle.IsEntry(key):
		case c.Kv.CreateRevision == c.Revision:
			e := &lived{Part: oracle.PartOf(key), key: key, owner: v.Owner, created: c.Revision,
				permit: strings.HasPrefix(key, oracle.Keys+"sem/")}
			session, _ := layout.LeaseOf(key)
			e.session = int64(session)
			for _, other := range h.queues[e.Prefix] {
				if !(e.Shared && other.Shared) {
					e.ahead = append(e.ahead, other)
				}
			}
			if before := left[queueOf(e)]; before != nil && before.Shared == e.Shared && !h.isHeld(before) {
				e.follows = before
			}
			e.held = h.isHeld(e)
			put = append(put, e)
		case e == nil:
		case c.Kv.Lease != e.session && e.movedAt == 0:
			e.movedAt = c.Revision
		case v.Notice.Given() && e.noticedAt == 0:
			e.noticedAt = c.Revision
		}
	}
	h.entries = append(h.entries, put...)
	for _, e := range put {
		h.queues[e.Prefix] = append(h.queues[e.Prefix], e)
	}
}

// standing returns the entry that stands at a key, or nil.
func (h *history) standing(key string) *lived {
	all := h.queues[oracle.PartOf(key).Prefix]
	if i := slices.IndexFunc(all, func(e *lived) bool { return e.key == key }); i >= 0 {
		return all[i]
	}
	return nil
}

// isHeld reports whether its process says that an entry was held.
func (h *history) isHeld(e *lived) bool {
	return slices.ContainsFunc(h.steps[e.id()], func(s queue.Step) bool { return s.Action == queue.Holds })
}

// findRequeued finds entries of calls that had another one, under a lease that their sessions have lost since. Such an
// entry must wait for the lock delay, unless another call of the session has held under the new lease: it has waited.
func (h *history) findRequeued(calls map[string][]oracle.Part) {
	latest := make(map[string]*lived) // by owner and queue
	held := make(map[string]bool)     // queues and leases
	for _, e := range h.entries {
		owner, line := e.owner+" "+e.key[:strings.LastIndexByte(e.key, '/')], idOf(e.Prefix, e.session)
		before := latest[owner]
		e.requeued = calls[e.owner] != nil && before != nil && !before.held && before.session != e.session && !held[line]
		latest[owner], held[line] = e, held[line] || e.held
	}
}

// keyBefore returns how a session key stood right before a revision. It returns false if that is not known.
func (h *history) keyBefore(lease, at int64) (latest keyChange, known bool) {
	for _, c := range h.keys[lease] {
		if c.at < at {
			latest, known = c, true
		}
	}
	return latest, known
}

// sessionOf returns the lease whose session key a key is.
func sessionOf(key string) (lease int64, is bool) {
	hex, is := strings.CutPrefix(key, oracle.Keys+"session/")
	if !is {
		return 0, false
	}
	_, err := fmt.Sscanf(hex, "%x", &lease)
	return lease, err == nil
}
