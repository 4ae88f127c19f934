package robustness

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// find finds the entries of h, which must have been put at one revision.
func (o *oracle) find(s *simulation, h *held) {
	if h.rev == 0 {
		for _, c := range o.history(s, h.lock.Key()) {
			if isNew(c) && c.Revision <= h.lock.AcquiredRevision() {
				h.rev = c.Revision
			}
		}
	}
	for i := range h.parts {
		p := &h.parts[i]
		for _, c := range o.history(s, p.prefix) {
			lease, _ := queue.LeaseOf(string(c.Kv.Key))
			if isNew(c) && c.Revision == h.rev && p.of(c.Kv) && lease == h.lock.Lease() {
				p.key = string(c.Kv.Key)
			}
		}
		if p.key == "" {
			s.fail("%s: granted, and no entry below %s was put at revision %d", h.who, p.prefix, h.rev)
		}
	}
}

// checkVerified checks that h could hold at the revision at which it was seen to.
func (o *oracle) checkVerified(s *simulation, h *held) {
	at := h.lock.AcquiredRevision()
	missing, ahead, _ := h.judge(func(prefix string) []*mvccpb.KeyValue { return o.queueAt(s, prefix, at) })
	if missing != "" || ahead != "" {
		s.fail("%s: granted at revision %d, where of its entries %q was missing, and %q was ahead", h.who, at, missing, ahead)
	}
}

// judge returns an entry of h that is missing, one that excludes it and is ahead of it, and those that stand.
func (h *held) judge(read func(prefix string) []*mvccpb.KeyValue) (missing, ahead string, stand []*mvccpb.KeyValue) {
	for _, p := range h.parts {
		found := false
		for _, kv := range read(p.prefix) {
			other := partOf(kv)
			switch {
			case string(kv.Key) == p.key && kv.CreateRevision == h.rev:
				found, stand = true, append(stand, kv)
			case p.excludes(other) && (kv.CreateRevision < h.rev || kv.CreateRevision == h.rev && !ownedBy(kv, h.who)):
				ahead = string(kv.Key)
			}
		}
		if !found {
			missing = p.key
		}
	}
	return missing, ahead, stand
}

// hadOneAhead reports whether an entry stood in a queue when another was put at a revision.
func hadOneAhead(history []etcdfake.Change, rev int64) bool {
	existing := 0
	for _, c := range history {
		switch {
		case c.Revision >= rev:
			return existing > 0
		case c.Deleted:
			existing--
		case isNew(c):
			existing++
		}
	}
	return false
}

// history returns the changes below a prefix. A grant reads each prefix once, since that takes most of the time.
func (o *oracle) history(s *simulation, prefix string) []etcdfake.Change {
	changes, known := o.past[prefix]
	if !known {
		changes = s.history(prefix)
		if o.past != nil {
			o.past[prefix] = changes
		}
	}
	return changes
}

// queueAt returns the entries below a prefix as they stood at a revision.
func (o *oracle) queueAt(s *simulation, prefix string, rev int64) []*mvccpb.KeyValue {
	at := make(map[string]*mvccpb.KeyValue)
	for _, c := range o.history(s, prefix) {
		switch {
		case c.Revision > rev:
		case c.Deleted:
			delete(at, string(c.Kv.Key))
		default:
			at[string(c.Kv.Key)] = c.Kv
		}
	}
	return slices.Collect(maps.Values(at))
}

// isEntry reports whether key is the key of an entry.
func isEntry(key string) bool { return strings.Contains(key, "/@/") }

// isReader reports whether an entry is one of readers.
func isReader(key string) bool { return strings.Contains(key, "/@/!s") }

// isNew reports whether a change is the put of a new key.
func isNew(c etcdfake.Change) bool { return !c.Deleted && c.Kv.CreateRevision == c.Revision }

// owner returns the owner that the entry of a lock has. It does not decode the whole value, which would take too long.
func owner(kv *mvccpb.KeyValue) string {
	_, from, _ := bytes.Cut(kv.Value, []byte(`"owner":"`))
	text, _, _ := bytes.Cut(from, []byte(`"`))
	return string(text)
}

// ownedBy reports whether the entry of a lock has that owner.
func ownedBy(kv *mvccpb.KeyValue, who string) bool {
	return bytes.Contains(kv.Value, []byte(`"owner":"`+who+`"`))
}

// checkRecord checks at the end of a schedule that each attempt had all of its entries put at one revision, and that no
// two that exclude each other were.
func (o *oracle) checkRecord(s *simulation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var changes []etcdfake.Change // at one revision
	judge := func() {
		for i, c := range changes {
			p := partOf(c.Kv)
			wanted, parts := o.wanted[owner(c.Kv)], 0
			for j, other := range changes {
				if ownedBy(other.Kv, owner(c.Kv)) {
					parts++
				} else if q := partOf(other.Kv); j > i && (p.excludes(q) || p.prefix == q.prefix && isPermit(q.key)) {
					s.fail("%s and %s were put at one revision, %d", c.Kv.Key, other.Kv.Key, c.Revision)
				}
			}
			if wanted != nil && parts != len(wanted) {
				s.fail("%s: %d entries were put at revision %d, and the attempt has %d", owner(c.Kv), parts, c.Revision,
					len(wanted))
			}
		}
		changes = nil
	}
	for _, c := range s.history(simEntries) {
		if !isEntry(string(c.Kv.Key)) || !isNew(c) {
			continue
		}
		if len(changes) > 0 && changes[0].Revision != c.Revision {
			judge()
		}
		changes = append(changes, c)
	}
	judge()
}

// partOf returns the part that an entry is.
func partOf(kv *mvccpb.KeyValue) part {
	key := string(kv.Key)
	return part{prefix: key[:strings.LastIndex(key, "/")+1], reads: isReader(key) || isPermit(key), key: key}
}
