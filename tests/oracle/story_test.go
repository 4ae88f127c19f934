package oracle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A story is a record as it comes about. The processes a, b, … have a session each, with the lease 1, 2, …
type story struct {
	Record
	now  time.Duration
	rev  int64
	keys map[string]*mvccpb.KeyValue
}

func newStory() *story {
	return &story{Record: Record{Leases: make(map[clientv3.LeaseID]Lease), Fast: true}, rev: 1,
		keys: make(map[string]*mvccpb.KeyValue)}
}

// at sets the time, in milliseconds.
func (s *story) at(ms int) *story {
	s.now = time.Duration(ms) * time.Millisecond
	return s
}

func leaseOf(who string) clientv3.LeaseID { return clientv3.LeaseID(who[0]-'a') + 1 }

// put puts a key, at a revision of its own.
func (s *story) put(key, value string, lease clientv3.LeaseID) {
	s.rev++
	s.putMore(key, value, lease)
}

// putMore puts a key at the revision of the last change.
func (s *story) putMore(key, value string, lease clientv3.LeaseID) {
	before := s.keys[key]
	kv := &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: s.rev, ModRevision: s.rev,
		Lease: int64(lease)}
	if before != nil {
		kv.CreateRevision = before.CreateRevision
	}
	s.keys[key] = kv
	s.Changes = append(s.Changes, Change{Revision: s.rev, After: s.now, Before: s.now, Kv: kv, Prev: before})
}

// remove deletes a key, at a revision of its own.
func (s *story) remove(key string, cause Cause) {
	s.rev++
	s.removeMore(key, cause)
}

// removeMore deletes a key at the revision of the last change.
func (s *story) removeMore(key string, cause Cause) {
	s.Changes = append(s.Changes, Change{Revision: s.rev, After: s.now, Before: s.now, Deleted: true, Cause: cause,
		Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: s.rev}, Prev: s.keys[key]})
	delete(s.keys, key)
}

// An attempt is a call that has put its entries.
type attempt struct {
	who   string
	rev   int64
	parts []Part
	keys  []string
}

// queue puts the entries of a call, whose process is the first letter of who, at one revision.
func (s *story) queue(who string, parts ...Part) attempt {
	s.rev++
	a := attempt{who: who, rev: s.rev, parts: parts}
	for _, p := range parts {
		s.putMore(s.entry(who, p, 1), value(who), leaseOf(who))
		a.keys = append(a.keys, s.entry(who, p, 1))
	}
	if _, known := s.Leases[leaseOf(who)]; !known {
		s.Leases[leaseOf(who)] = Lease{Process: who[:1]}
	}
	return a
}

func (s *story) entry(who string, p Part, weight int) string {
	mode := ""
	switch {
	case isPermit(p.Prefix):
		mode = fmt.Sprintf("%d-", weight)
	case p.Shared:
		mode = "!s"
	}
	return fmt.Sprintf("%s%s%x-%s", p.Prefix, mode, int64(leaseOf(who)), nonce(s.rev))
}

// nonce returns the random part of a key.
func nonce(rev int64) string {
	return strings.Map(func(digit rune) rune { return 'A' + digit - '0' }, fmt.Sprintf("%016d", rev))
}

func value(who string) string { return valueOf(layout.Value{Identity: layout.Identity{Owner: who}}) }

func valueOf(v layout.Value) string {
	v.Queued = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return v.Encode()
}

// write puts the entries of an attempt again, with a value.
func (s *story) write(a attempt, value string, lease clientv3.LeaseID) {
	for _, key := range a.keys {
		s.put(key, value, lease)
	}
}

// grant makes a call return, and the first Check nil.
func (s *story) grant(a attempt) *Hold {
	h := &Hold{Who: a.who, Process: a.who[:1], Parts: a.parts, Key: a.keys[0], Lease: leaseOf(a.who), AcquiredAt: s.rev,
		Granted: s.now, First: s.now, Last: s.now}
	if !a.parts[0].Shared || isPermit(a.parts[0].Prefix) {
		h.Token = holdfast.Token(a.rev)
	}
	s.Holds = append(s.Holds, h)
	return h
}

// until has Check return nil up to now.
func (s *story) until(h *Hold) *Hold {
	h.Last, h.Ended = s.now, s.now
	return h
}

// release deletes the entries, and returns nil.
func (s *story) release(a attempt, h *Hold) {
	s.until(h)
	s.delete(a, ByRequest)
	h.Unlocked = s.now
}

// delete deletes the entries of an attempt at one revision, and with a revocation or an expiry the session key.
func (s *story) delete(a attempt, cause Cause) {
	s.rev++
	for _, key := range a.keys {
		s.removeMore(key, cause)
	}
	if cause.revoked() || cause == ByLease {
		s.removeMore(SessionKey(leaseOf(a.who)), cause)
	}
}

// check judges the story, which has to break one rule: the violation has that text. None, if that is "".
func (s *story) check(t *testing.T, want string) {
	t.Helper()
	all := s.Judge().Violations
	if want == "" {
		if len(all) > 0 {
			t.Errorf("violations: %q", all)
		}
		return
	}
	if len(all) != 1 || !strings.Contains(all[0], want) {
		t.Errorf("violations %q, want one of %q", all, want)
	}
}

var (
	writes = LockPart("x", false)
	reads  = LockPart("x", true)
	permit = PermitPart("x")
)

// turns is a story that breaks no rule: a holds, b waits and holds after it.
func turns() *story {
	s := newStory()
	a := s.at(1000).queue("a1", writes)
	ha := s.grant(a)
	b := s.at(1500).queue("b1", writes)
	s.at(2000).release(a, ha)
	hb := s.at(2010).grant(b)
	s.at(3000).release(b, hb)
	return s
}

func TestStoryThatBreaksNoRule(t *testing.T) {
	s := turns()
	s.check(t, "")
	if v := s.Judge(); v.Counts[Granted] != 2 {
		t.Errorf("%v", v.Stats)
	}
}
