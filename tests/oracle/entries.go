package oracle

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
)

// Keys is the prefix of all keys of holdfast.
const Keys = "holdfast/"

const (
	shardKeys  = Keys + "shard/"
	memberKeys = Keys + "member/"
)

// A Part is a queue that an acquisition has an entry in.
type Part struct {
	Prefix string // of the queue
	Shared bool   // as a reader has it, or a permit: several are held at a time
}

// LockPart is the part of a mutex, of a writer or, shared, of a reader.
func LockPart(name string, shared bool) Part { return Part{Keys + "lock/" + name + "/@/", shared} }

// PermitPart is the part of a permit.
func PermitPart(name string) Part { return Part{Keys + "sem/" + name + "/@/", true} }

// ElectionPart is the part of a leadership.
func ElectionPart(name string) Part { return Part{Keys + "election/" + name + "/@/", false} }

// ShardPart is the part of a shard.
func ShardPart(name string, index int) Part {
	return Part{fmt.Sprintf("%s%s/%d/@/", shardKeys, name, index), false}
}

// excludes reports whether p is held alone among what uses the queue as the other one does.
func (p Part) excludes(other Part) bool {
	return p.Prefix == other.Prefix && !(p.Shared && other.Shared)
}

// IsEntry reports whether a key is that of an entry.
func IsEntry(key string) bool {
	return (strings.Contains(key, "/@/") || isTurn(key)) && !IsMember(key)
}

// isTurn reports whether a key is that of a turn of a semaphore. It is a permit once it has a mark: a second put.
func isTurn(key string) bool { return strings.Contains(key, turnsOf) && isPermit(key) }

const turnsOf = "/@turn/"

// MembersOf is the prefix of the members of a group.
func MembersOf(group string) string { return memberKeys + group + "/@/" }

// IsMember reports whether a key is that of a member of a group.
func IsMember(key string) bool { return strings.HasPrefix(key, memberKeys) }

// PartOf returns the part that an entry is.
func PartOf(key string) Part {
	prefix := key[:strings.LastIndexByte(key, '/')+1]
	if isTurn(key) {
		prefix = strings.TrimSuffix(prefix, turnsOf) + "/@/"
	}
	return Part{prefix, strings.HasPrefix(key, prefix+"!s") || isPermit(key)}
}

// An entry is one entry from its put to its deletion. Its key may have been that of another before.
type entry struct {
	Part
	key     string
	session clientv3.LeaseID   // whose it is, which its key names
	later   []clientv3.LeaseID // of the sessions that have attached it, one after the other
	put     *Change
	gone    *Change // nil: it stands
	left    *Change // the first with another lease than its session's, MinHold's or an administrator's, or nil
	notice  *Change // the first with a notice of an administrator, or nil
	mark    *Change // the first with the mark of a permit, or nil
}

// String says when the entry was put, and how it ended.
func (e *entry) String() string {
	switch {
	case e == nil:
		return "none"
	case e.gone == nil:
		return fmt.Sprintf("%s (put at %d, stands)", e.key, e.put.Revision)
	default:
		return fmt.Sprintf("%s (put at %d, %s at %d)", e.key, e.put.Revision, e.how(), e.gone.Revision)
	}
}

// stood reports whether the entry existed at a revision.
func (e *entry) stood(at int64) bool {
	return e.put.Revision <= at && (e.gone == nil || e.gone.Revision > at)
}

// removed reports whether the entry was on the lease of an administrator when it was deleted.
func (e *entry) removed() bool {
	return e.notice != nil && !e.isOf(clientv3.LeaseID(e.gone.Prev.Lease))
}

// isOf reports whether a lease is of a session that has queued with the entry, or attached it.
func (e *entry) isOf(lease clientv3.LeaseID) bool {
	return lease == e.session || slices.Contains(e.later, lease)
}

// how says why the entry was deleted.
func (e *entry) how() string {
	if e.removed() {
		return "removed by an administrator"
	}
	return e.gone.Cause.String()
}

// ownedBy reports whether the entry has that owner.
func (e *entry) ownedBy(who string) bool {
	return bytes.Contains(e.put.Kv.Value, []byte(`"owner":"`+who+`"`))
}

// owner returns the owner that the entry has. It does not decode the whole value, which would take too long.
func (e *entry) owner() string {
	_, from, _ := bytes.Cut(e.put.Kv.Value, []byte(`"owner":"`))
	text, _, _ := bytes.Cut(from, []byte(`"`))
	return string(text)
}

// history is the record's changes in the form that the rules need.
type history struct {
	changes []Change
	all     []*entry
	queues  map[string][]*entry // by prefix, in order of their puts
	keys    map[string][]*Change
}

func newHistory(changes []Change) *history {
	h := &history{changes: changes, queues: make(map[string][]*entry), keys: make(map[string][]*Change)}
	standing := make(map[string]*entry)
	for i := range changes {
		c := &changes[i]
		key := string(c.Kv.Key)
		if !IsEntry(key) {
			h.keys[key] = append(h.keys[key], c)
			continue
		}
		e := standing[key]
		switch {
		case c.Deleted && e != nil:
			e.gone = c
			delete(standing, key)
		case c.Deleted:
		case c.Kv.CreateRevision == c.Revision:
			e = &entry{Part: PartOf(key), key: key, put: c}
			e.session, _ = layout.LeaseOf(key)
			standing[key] = e
			h.all = append(h.all, e)
			h.queues[e.Prefix] = append(h.queues[e.Prefix], e)
		case e != nil:
			v, _ := layout.DecodeValue(c.Kv.Value)
			if before, _ := layout.DecodeValue(c.Prev.Value); !before.Detached.IsZero() && v.Detached.IsZero() {
				e.later = append(e.later, clientv3.LeaseID(c.Kv.Lease))
			}
			if e.left == nil && clientv3.LeaseID(c.Kv.Lease) != e.session {
				e.left = c
			}
			if e.notice == nil && v.Notice.Given() {
				e.notice = c
			}
			if e.mark == nil && isTurn(key) {
				e.mark = c
			}
		}
	}
	return h
}

// made returns a change of a revision, or nil.
func (h *history) made(rev int64) *Change {
	i, found := slices.BinarySearchFunc(h.changes, rev, func(c Change, rev int64) int { return int(c.Revision - rev) })
	if !found {
		return nil
	}
	return &h.changes[i]
}

// end is the time of the last change.
func (h *history) end() time.Duration {
	if len(h.changes) == 0 {
		return 0
	}
	return h.changes[len(h.changes)-1].Before
}

// checkPuts checks that each attempt had all of its entries put at one revision, and that no two attempts that exclude
// each other had.
func (j *judge) checkPuts() {
	for from := 0; from < len(j.all); {
		to := from
		for to < len(j.all) && j.all[to].put.Revision == j.all[from].put.Revision {
			to++
		}
		together := j.all[from:to]
		from = to
		for i, e := range together {
			own := 0
			for k, other := range together {
				switch {
				case other.ownedBy(e.owner()):
					own++
				case k > i && (e.excludes(other.Part) || e.Prefix == other.Prefix && isPermit(e.key)):
					j.fail("%s and %s were put at one revision, %d", e.key, other.key, e.put.Revision)
				}
			}
			if wanted := j.Wanted[e.owner()]; wanted != nil && own != len(wanted) {
				j.fail("%s: %d entries were put at revision %d, and the attempt has %d", e.owner(), own, e.put.Revision,
					len(wanted))
			}
		}
	}
}

// sessionKey returns the changes of the session key of a lease.
func (h *history) sessionKey(id clientv3.LeaseID) []*Change { return h.keys[SessionKey(id)] }

// SessionKey returns the session key of a lease.
func SessionKey(id clientv3.LeaseID) string { return fmt.Sprintf("%ssession/%x", Keys, int64(id)) }

// SessionKeyOf returns the session key of the lease that an entry was put with.
func SessionKeyOf(entry string) string {
	id, _ := layout.LeaseOf(entry)
	return SessionKey(id)
}
