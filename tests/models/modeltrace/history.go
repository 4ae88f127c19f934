package modeltrace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A History is a record in the form in which entries are followed.
type History struct {
	Entries []*Entry                 // in order of their puts
	Keys    map[int64][]KeyChange    // by lease: of session keys
	Limits  map[string][]LimitChange // by prefix: of semaphores

	queues  map[string][]*Entry     // those that stand, or whose claims do, by prefix
	gates   map[string][]int64      // what puts of a key have compared
	steps   map[string][]lease.Step // but for Sends, by the id of an entry
	touched map[int64][]int64       // when an entry of a lease was changed or deleted
}

// A KeyChange is a put or a deletion of a session key.
type KeyChange struct {
	At      int64
	Deleted bool
}

// A LimitChange is a put of the limit of a semaphore.
type LimitChange struct {
	At    int64
	Limit layout.Limit
}

// An Entry is one from its put to its deletion. Its key may be that of others before and after.
type Entry struct {
	oracle.Part
	Key       string
	Permit    bool
	Session   int64 // the lease that its key names
	Owner     string
	Created   int64
	Gone      int64 // 0: it stands
	ByRequest bool  // its session has deleted it
	Claimed   bool  // its put has put its claim, too
	Cleared   int64 // when the claim was deleted; 0: it stands, or there is none
	MovedAt   int64 // when it was put on another lease first, or 0
	Detached  bool  // at any time: then it is not followed
	NoticedAt int64 // when an administrator wrote into it first, or 0
	Turn      bool  // of a semaphore: a permit only when it is marked
	MarkedAt  int64 // of a turn: when it was put a second time, or 0

	Ahead    []*Entry // those that it waits for, and those whose claims it waits for, when it was put
	Held     bool
	Requeued bool // its session has lost a lease since the call began
}

func (e *Entry) id() string     { return IDOf(e.Key, e.Created) }
func (e *Entry) String() string { return fmt.Sprintf("%s (put at %d)", e.Key, e.Created) }

const permits = oracle.Keys + "sem/"

// IDOf tells an entry from earlier and later ones at its key.
func IDOf(key string, created int64) string { return fmt.Sprint(key, " ", created) }

// NewHistory reads a record, and the steps that processes say of their entries, in order for each process.
func NewHistory(record *oracle.Record, said []lease.Step) *History {
	changes := record.Changes
	h := &History{
		Keys: make(map[int64][]KeyChange), Limits: make(map[string][]LimitChange),
		queues: make(map[string][]*Entry), gates: make(map[string][]int64), steps: make(map[string][]lease.Step),
		touched: make(map[int64][]int64),
	}
	for _, s := range said {
		if s.Action == lease.Sends {
			h.gates[s.Key] = append(h.gates[s.Key], s.Gate)
		} else {
			id := IDOf(s.Key, s.Created)
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
func (h *History) add(changes []oracle.Change) {
	claimed := make(map[string]bool) // entries whose claims are put
	for _, c := range changes {
		key := string(c.Kv.Key)
		if lease, is := sessionOf(key); is {
			h.Keys[lease] = append(h.Keys[lease], KeyChange{c.Revision, c.Deleted})
		}
		if entry, isClaim := EntryOf(key); isClaim {
			claimed[entry] = !c.Deleted && c.Kv.CreateRevision == c.Revision
			if c.Deleted {
				h.cleared(entry, c.Revision)
			}
		}
		if e := h.standing(key); e != nil && c.Deleted {
			e.Gone = c.Revision
			e.ByRequest = c.Cause == oracle.ByRequest && e.MovedAt == 0
			h.touch(e, c.Revision)
			h.forget(e.Prefix)
		}
	}
	var put []*Entry
	for _, c := range changes {
		key := string(c.Kv.Key)
		semaphore, isLimit := strings.CutSuffix(key, "@limit")
		switch {
		case c.Deleted:
		case isLimit && strings.HasPrefix(key, permits):
			limit, _ := layout.LimitIn(c.Kv)
			h.Limits[semaphore+"@/"] = append(h.Limits[semaphore+"@/"], LimitChange{c.Revision, limit})
		case !oracle.IsEntry(key):
		case c.Kv.CreateRevision == c.Revision:
			e := h.put(c)
			e.Claimed = claimed[key]
			put = append(put, e)
		default:
			if e := h.standing(key); e != nil {
				h.change(e, c)
			}
		}
	}
	h.Entries = append(h.Entries, put...)
	for _, e := range put {
		h.queues[e.Prefix] = append(h.queues[e.Prefix], e)
	}
}

func (e *Entry) claimStands() bool { return e.Claimed && e.Cleared == 0 }

// cleared records that the claim of the entry at a key was deleted.
func (h *History) cleared(key string, at int64) {
	for _, e := range h.queues[oracle.PartOf(key).Prefix] {
		if e.Key == key && e.claimStands() {
			e.Cleared = at
		}
	}
	h.forget(oracle.PartOf(key).Prefix)
}

// forget forgets the entries of a queue of which nothing stands any more.
func (h *History) forget(prefix string) {
	h.queues[prefix] = slices.DeleteFunc(h.queues[prefix], func(e *Entry) bool { return e.Gone != 0 && !e.claimStands() })
}

// put returns the entry that a change puts.
func (h *History) put(c oracle.Change) *Entry {
	key := string(c.Kv.Key)
	v, _ := layout.DecodeValue(c.Kv.Value)
	session, _ := layout.LeaseOf(key)
	e := &Entry{
		Part: oracle.PartOf(key), Key: key, Turn: strings.Contains(key, "/@turn/"),
		Permit: strings.HasPrefix(key, permits), Session: int64(session),
		Owner: v.Owner, Created: c.Revision}
	for _, other := range h.queues[e.Prefix] {
		if e.Permit || !(e.Shared && other.Shared) {
			e.Ahead = append(e.Ahead, other)
		}
	}
	e.Held = h.isHeld(e)
	return e
}

// queueOf tells the queues of sessions apart.
func queueOf(e *Entry) string { return IDOf(e.Prefix, e.Session) }

// change adds what is written into an entry.
func (h *History) change(e *Entry, c oracle.Change) {
	v, _ := layout.DecodeValue(c.Kv.Value)
	h.touch(e, c.Revision)
	e.Detached = e.Detached || !v.Detached.IsZero()
	switch {
	case e.Detached:
	case e.Turn && e.MarkedAt == 0:
		e.MarkedAt = c.Revision
	case c.Kv.Lease != e.Session && e.MovedAt == 0:
		e.MovedAt = c.Revision
	case v.Notice.Given() && e.NoticedAt == 0:
		e.NoticedAt = c.Revision
	}
}

func (h *History) touch(e *Entry, at int64) { h.touched[e.Session] = append(h.touched[e.Session], at) }

// standing returns the entry that stands at a key, or nil.
func (h *History) standing(key string) *Entry {
	all := h.queues[oracle.PartOf(key).Prefix]
	if i := slices.IndexFunc(all, func(e *Entry) bool { return e.Key == key && e.Gone == 0 }); i >= 0 {
		return all[i]
	}
	return nil
}

// isHeld reports whether its process says that an entry was held.
func (h *History) isHeld(e *Entry) bool {
	return slices.ContainsFunc(h.steps[e.id()], func(s lease.Step) bool { return s.Action == lease.Holds })
}

// findRequeued finds entries of calls that had another one, under a lease that their sessions have lost since. Such an
// entry must wait for the lock delay, unless another call of the session has held under the new lease: it has waited.
// Not so with permits: each call is in a line of its own.
func (h *History) findRequeued(calls map[string][]oracle.Part) {
	latest := make(map[string]*Entry) // by owner and queue
	held := make(map[string]bool)     // queues and leases
	for _, e := range h.Entries {
		owner, line := e.Owner+" "+e.Key[:strings.LastIndexByte(e.Key, '/')], queueOf(e)
		before := latest[owner]
		e.Requeued = calls[e.Owner] != nil && before != nil && !before.Held && before.Session != e.Session && !held[line]
		latest[owner], held[line] = e, held[line] || e.Held && !e.Permit
	}
}

// Gates returns what the puts of an entry have compared: mod revisions of its session key.
func (h *History) Gates(e *Entry) []int64 {
	return h.gates[strings.Replace(e.Key, "/@turn/", "/@/", 1)]
}

// Steps returns what its process says of an entry.
func (h *History) Steps(e *Entry) []lease.Step { return h.steps[e.id()] }

// KeyBefore returns how a session key stood right before a revision. It returns false if that is not known.
func (h *History) KeyBefore(lease, at int64) (latest KeyChange, known bool) {
	for _, c := range h.Keys[lease] {
		if c.At < at {
			latest, known = c, true
		}
	}
	return latest, known
}

// EndsSession reports whether an entry may have been deleted because its session gave up the lease: then the session
// key goes next, but for puts that were on their way.
func (h *History) EndsSession(e *Entry) bool {
	for _, key := range h.Keys[e.Session] {
		if key.Deleted && key.At > e.Gone {
			return !slices.ContainsFunc(h.touched[e.Session], func(at int64) bool { return at > e.Gone && at < key.At })
		}
	}
	return false
}

// EntryOf returns the key of the entry that a claim belongs to; false for a key that is no claim.
func EntryOf(claim string) (entry string, isClaim bool) {
	if foreign, is := strings.CutPrefix(claim, oracle.Keys+"claim/"); is {
		return foreign, true
	}
	name, id, isClaim := strings.Cut(claim, "/@claim/")
	if reader, is := strings.CutPrefix(id, "s"); is {
		id = "!s" + reader
	}
	if turn, is := strings.CutPrefix(id, "t"); is {
		return name + "/@turn/" + turn, isClaim
	}
	return name + "/@/" + id, isClaim
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
