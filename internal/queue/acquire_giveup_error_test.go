package queue

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdfake"
)

func TestErrorOfACallSaysWhatItWaitedFor(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := start(t, srv).queue("x")
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		ahead, dead := &mvccpb.KeyValue{Key: []byte("ahead"), CreateRevision: 3}, []deadClaim{{key: "dead", rev: 4}}
		for name, c := range map[string]struct {
			e     *entry
			inSet bool
			want  string
		}{
			"no reply": {&entry{stage: created}, false, "; etcd has not answered the request to queue"},
			"the delay": {
				&entry{stage: placed, wait: wait{claims: dead}}, false,
				"; it was first in the queue, and the lock delay had not passed: the last holder went without a release",
			},
			"of a set": {
				&entry{stage: placed, wait: wait{more: true}}, true,
				"; it was first in the queue of \"x\", and the lock delay had not passed: " +
					"the last holder went without a release",
			},
			"suspended": {
				&entry{stage: placed}, false,
				"; it was first in the queue, and the reply came too late, or the session was not connected",
			},
			"a whole set": {
				&entry{stage: placed}, true,
				"; it was first in all queues, and the reply came too late, or the session was not connected",
			},
			"a permit at the front": {&entry{stage: placed, wait: wait{permit: new(permit)}}, false, ""},
			"a permit in its delay": {
				&entry{stage: placed, wait: wait{permit: new(permit), claims: dead}}, false,
				"; it was first in the queue, and the lock delay had not passed: the last holder went without a release",
			},
			"another":                   {&entry{stage: placed, wait: wait{ahead: ahead}}, false, ""},
			"another, and a dead claim": {&entry{stage: placed, wait: wait{ahead: ahead, claims: dead}}, false, ""},
		} {
			c.e.Queue, c.e.caller = q, &caller{q: q, inSet: c.inSet}
			if got := c.e.describe(canceled); got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
			if got := c.e.describe(t.Context()); got != "" {
				t.Errorf("%s, of a call that was not canceled: %q", name, got)
			}
		}
	})
}
