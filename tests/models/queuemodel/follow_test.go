package queuemodel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A forgery is a record of a run that was not made: what etcd's store has changed, and what processes have said.
type forgery struct {
	oracle.Record
	steps []queue.Step
}

func keyOf(lease int64) string {
	return fmt.Sprintf("%sa/@/%x-ABCDEFGHIJKLMNOP", oracle.Keys+"lock/", lease)
}

func sessionKeyOf(lease int64) string { return fmt.Sprintf("%ssession/%x", oracle.Keys, lease) }

func valueOf(owner string, n layout.Notice) []byte {
	return []byte(layout.Value{Identity: layout.Identity{Owner: owner}, Queued: time.Unix(1e9, 0), Notice: n}.Encode())
}

// put puts a key with a lease at a revision.
func (f *forgery) put(at int64, key string, lease int64) {
	kv := &mvccpb.KeyValue{Key: []byte(key), Lease: lease, CreateRevision: at, ModRevision: at,
		Value: valueOf("of "+key, layout.Notice{})}
	f.Changes = append(f.Changes, oracle.Change{Revision: at, Kv: kv})
}

// gone deletes a key at a revision.
func (f *forgery) gone(at int64, key string, lease int64, cause oracle.Cause) {
	f.Changes = append(f.Changes, oracle.Change{Revision: at, Deleted: true, Cause: cause,
		Kv: &mvccpb.KeyValue{Key: []byte(key)}, Prev: &mvccpb.KeyValue{Key: []byte(key), Lease: lease}})
}

// queue has the entry of a lease put, by a put that compares a gate.
func (f *forgery) queue(at, lease, gate int64) {
	f.steps = append(f.steps, queue.Step{Action: queue.Sends, Key: keyOf(lease), Gate: gate})
	f.put(at, keyOf(lease), lease)
}

// says is a step of the entry of a lease.
func (f *forgery) says(lease, created int64, s queue.Step) {
	s.Key, s.Created = keyOf(lease), created
	f.steps = append(f.steps, s)
}

// Three sessions with leases 1, 2 and 3, whose keys are put at these revisions. The first holds by an entry of revision
// 10, the second waits with one of 11.
func forge() *forgery {
	f := new(forgery)
	for lease := range int64(3) {
		f.put(lease+1, sessionKeyOf(lease+1), lease+1)
	}
	f.queue(10, 1, 1)
	f.says(1, 10, queue.Step{Action: queue.Judged, Read: 10})
	f.says(1, 10, queue.Step{Action: queue.Holds})
	f.queue(11, 2, 2)
	f.says(2, 11, queue.Step{Action: queue.Judged, Read: 11, Ahead: keyOf(1), AheadCreated: 10})
	return f
}

// revoked ends the first lease at revision 20.
func (f *forgery) revoked() {
	f.gone(20, sessionKeyOf(1), 1, oracle.ByRevocation)
	f.gone(20, keyOf(1), 1, oracle.ByRevocation)
}

// Each case is a record that the model accepts, and another one that wrong code could make.
func TestForgedRecordsAreRefused(t *testing.T) {
	free := queue.Step{Action: queue.Judged, Read: 20}
	delays := queue.Step{Action: queue.Judged, Read: 20, Delays: true}
	waited, holds := queue.Step{Action: queue.Waited}, queue.Step{Action: queue.Holds}
	for rule, c := range map[string]struct{ right, wrong func(f *forgery) }{
		"a revoked entry ahead causes a delay": {
			func(f *forgery) { f.revoked(); f.says(2, 11, delays); f.says(2, 11, waited); f.says(2, 11, holds) },
			func(f *forgery) { f.revoked(); f.says(2, 11, free); f.says(2, 11, holds) },
		},
		"a delay is waited for": {
			func(f *forgery) { f.revoked(); f.says(2, 11, delays); f.says(2, 11, waited); f.says(2, 11, holds) },
			func(f *forgery) { f.revoked(); f.says(2, 11, delays); f.says(2, 11, holds) },
		},
		"a release causes none": {
			func(f *forgery) { f.gone(20, keyOf(1), 1, oracle.ByRequest); f.says(2, 11, free); f.says(2, 11, holds) },
			func(f *forgery) { f.gone(20, keyOf(1), 1, oracle.ByRequest); f.says(2, 11, delays) },
		},
		"how an entry has left is judged by the session key at that revision": {
			func(f *forgery) {
				f.gone(20, keyOf(1), 1, oracle.ByRequest)
				f.gone(21, sessionKeyOf(1), 1, oracle.ByLease)
				f.says(2, 11, queue.Step{Action: queue.Judged, Read: 22})
			},
			func(f *forgery) {
				f.gone(20, keyOf(1), 1, oracle.ByRequest)
				f.gone(21, sessionKeyOf(1), 1, oracle.ByLease)
				f.says(2, 11, queue.Step{Action: queue.Judged, Read: 22, Delays: true})
			},
		},
		"an entry that waits is removed while the one ahead stands": {
			func(f *forgery) { f.gone(20, keyOf(2), 2, oracle.ByRequest) },
			func(f *forgery) { f.revoked(); f.gone(21, keyOf(2), 2, oracle.ByRequest) },
		},
		"the nearest entry is waited for": {
			func(f *forgery) {
				f.queue(20, 3, 3)
				f.says(3, 20, queue.Step{Action: queue.Judged, Read: 20, Ahead: keyOf(2), AheadCreated: 11})
			},
			func(f *forgery) {
				f.queue(20, 3, 3)
				f.says(3, 20, queue.Step{Action: queue.Judged, Read: 20, Ahead: keyOf(1), AheadCreated: 10})
			},
		},
		"a put compares the session key": {
			func(f *forgery) { f.put(20, sessionKeyOf(3), 3); f.queue(21, 3, 20) },
			func(f *forgery) { f.put(20, sessionKeyOf(3), 3); f.queue(21, 3, 3) },
		},
		"a call that queues again after a loss delays": {
			func(f *forgery) { f.again(true) },
			func(f *forgery) { f.again(false) },
		},
		"an entry that an administrator has written to is not held by": {
			func(f *forgery) {
				f.gone(20, keyOf(1), 1, oracle.ByRequest)
				f.says(2, 11, free)
				f.says(2, 11, holds)
				f.notice(21)
			},
			func(f *forgery) {
				f.gone(20, keyOf(1), 1, oracle.ByRequest)
				f.notice(21)
				f.says(2, 11, queue.Step{Action: queue.Judged, Read: 22})
				f.says(2, 11, holds)
			},
		},
	} {
		t.Run(rule, func(t *testing.T) {
			for _, forged := range []bool{false, true} {
				f := forge()
				if forged {
					c.wrong(f)
				} else {
					c.right(f)
				}
				r := Follow(&f.Record, f.steps)
				if forged && len(r.Refused) != 1 {
					t.Errorf("the model accepts the forged record: %v", r.Counts)
				}
				if !forged && len(r.Refused) != 0 {
					t.Errorf("the right record: %s", strings.Join(r.Refused, "\n"))
				}
				if !forged && r.Counts[Followed] < 2 {
					t.Errorf("the right record was not followed: %v", r.Counts)
				}
			}
		})
	}
}

// again has the second session lose its lease, and its call queue again under lease 3.
func (f *forgery) again(delays bool) {
	call := "of " + keyOf(2)
	f.Wanted = map[string][]oracle.Part{call: {oracle.LockPart("a", false)}}
	f.gone(20, sessionKeyOf(2), 2, oracle.ByLease)
	f.gone(20, keyOf(2), 2, oracle.ByLease)
	f.gone(21, keyOf(1), 1, oracle.ByRequest)
	f.queue(22, 3, 3)
	f.Changes[len(f.Changes)-1].Kv.Value = valueOf(call, layout.Notice{})
	f.says(3, 22, queue.Step{Action: queue.Judged, Read: 22, Delays: delays})
}

// notice has an administrator write into the entry of the second session.
func (f *forgery) notice(at int64) {
	f.put(at, keyOf(2), 2)
	kv := f.Changes[len(f.Changes)-1].Kv
	kv.CreateRevision = 11
	kv.Value = valueOf("of "+keyOf(2), layout.Notice{By: "administrator", At: time.Unix(1e9, 0)})
}
