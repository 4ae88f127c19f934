package modeltrace

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A Forgery is a record of a run that was not made: what etcd's store has changed, and what processes have said.
type Forgery struct {
	oracle.Record
	Steps  []queue.Step
	Key    func(lease int64) string // of the entry on a lease
	Claims bool                     // each entry has a claim
}

// Forged makes a record that a model accepts, and another one that wrong code could make. Both go on from one begin.
type Forged [2]func(f *Forgery)

// Forge follows forged records. Of a right one at least two entries must be followed to their ends.
func Forge(t *testing.T, begin func() *Forgery, follow func(*History) Report, all map[string]Forged) {
	for rule, c := range all {
		t.Run(rule, func(t *testing.T) {
			for i, wrong := range []bool{false, true} {
				f := begin()
				c[i](f)
				r := follow(NewHistory(&f.Record, f.Steps))
				if wrong && len(r.Refused) != 1 {
					t.Errorf("the model accepts the forged record: %v", r.Counts)
				}
				if !wrong && len(r.Refused) != 0 {
					t.Errorf("the right record: %s", strings.Join(r.Refused, "\n"))
				}
				if !wrong && r.Counts[Followed]+r.Counts[Permits+Followed] < 2 {
					t.Errorf("the right record was not followed: %v", r.Counts)
				}
			}
		})
	}
}

// ValueOf returns the value of the entry at a key, of a call of its own, with a notice.
func ValueOf(owner string, n layout.Notice) []byte {
	v := layout.Value{Identity: layout.Identity{Owner: owner}, Queued: time.Unix(1e9, 0), Notice: n}
	return []byte(v.Encode())
}

// Sessions puts the keys of sessions with the leases 1 to n, at these revisions.
func (f *Forgery) Sessions(n int64) {
	for lease := range n {
		f.Put(lease+1, SessionKey(lease+1), lease+1)
	}
}

// SessionKey returns the key of a session.
func SessionKey(lease int64) string { return oracle.SessionKey(clientv3.LeaseID(lease)) }

// Put puts a key with a lease at a revision.
func (f *Forgery) Put(at int64, key string, lease int64) {
	kv := &mvccpb.KeyValue{Key: []byte(key), Lease: lease, CreateRevision: at, ModRevision: at,
		Value: ValueOf("of "+key, layout.Notice{})}
	f.Changes = append(f.Changes, oracle.Change{Revision: at, Kv: kv})
}

// Limit puts the limit of the semaphore a.
func (f *Forgery) Limit(at int64, l layout.Limit) {
	f.Put(at, oracle.LimitKey("a"), 0)
	f.Last().Value = []byte(l.String())
}

// Last returns what was put last.
func (f *Forgery) Last() *mvccpb.KeyValue { return f.Changes[len(f.Changes)-1].Kv }

// Gone deletes a key at a revision.
func (f *Forgery) Gone(at int64, key string, lease int64, cause oracle.Cause) {
	f.Changes = append(f.Changes, oracle.Change{Revision: at, Deleted: true, Cause: cause,
		Kv: &mvccpb.KeyValue{Key: []byte(key)}, Prev: &mvccpb.KeyValue{Key: []byte(key), Lease: lease}})
}

// Released has the session of an entry delete it, with its claim.
func (f *Forgery) Released(at, lease int64) {
	f.Gone(at, f.Key(lease), lease, oracle.ByRequest)
	if f.Claims {
		f.Cleared(at, lease)
	}
}

// Cleared deletes the claim of an entry.
func (f *Forgery) Cleared(at, lease int64) {
	f.Gone(at, claimOf(f.Key(lease)), -lease, oracle.ByRequest)
}

// claimOf is the opposite of EntryOf.
func claimOf(entry string) string {
	return strings.NewReplacer("/@/", "/@claim/", "/@turn/", "/@claim/t").Replace(entry)
}

// Revoked ends a lease.
func (f *Forgery) Revoked(at, lease int64) {
	f.Gone(at, SessionKey(lease), lease, oracle.ByRevocation)
	f.Gone(at, f.Key(lease), lease, oracle.ByRevocation)
}

// Queue has the entry of a lease put, by a put that compares a gate. Its claim is on another lease.
func (f *Forgery) Queue(at, lease, gate int64) {
	f.Steps = append(f.Steps, queue.Step{Action: queue.Sends, Key: f.Key(lease), Gate: gate})
	if f.Claims {
		f.Put(at, claimOf(f.Key(lease)), -lease)
	}
	f.Put(at, f.Key(lease), lease)
}

// Mark puts the turn of a lease, which was created at a revision, a second time, and its claim.
func (f *Forgery) Mark(at, lease, created int64) {
	for key, on := range map[string]int64{f.Key(lease): lease, claimOf(f.Key(lease)): -lease} {
		f.Put(at, key, on)
		f.Last().CreateRevision, f.Last().Version = created, 2
	}
}

// Says is a step of the entry of a lease.
func (f *Forgery) Says(lease, created int64, s queue.Step) {
	s.Key, s.Created = f.Key(lease), created
	f.Steps = append(f.Steps, s)
}

// Again has the call of one lease queue under another one.
func (f *Forgery) Again(at, lease, next int64) {
	call := "of " + f.Key(lease)
	f.Wanted = map[string][]oracle.Part{call: {oracle.PartOf(f.Key(lease))}}
	f.Queue(at, next, next)
	f.Last().Value = ValueOf(call, layout.Notice{})
}
