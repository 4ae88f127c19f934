package queue

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdfake"
)

func TestErrorOfACallSaysWhatItWaitedFor(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := start(t, srv).queue("x")
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		ahead := &mvccpb.KeyValue{Key: []byte("ahead"), CreateRevision: 3}
		for name, c := range map[string]struct {
			e     *entry
			inSet bool
			want  string
		}{
			"no reply": {&entry{stage: created}, false, "; etcd has not answered the request to queue"},
			"the delay": {
				&entry{stage: placed, wait: wait{delay: delay{time.Now().Add(1)}}}, false,
				"; it was first in the queue, and the lock delay had not passed",
			},
			"of a set": {
				&entry{stage: placed, wait: wait{delay: delay{time.Now().Add(1)}}}, true,
				"; it was first in the queue of \"x\", and the lock delay had not passed",
			},
			"suspended":   {&entry{stage: placed}, false, "; it was first in the queue, and the session was not connected"},
			"a whole set": {&entry{stage: placed}, true, "; it was first in all queues, and the session was not connected"},
			"another":     {&entry{stage: placed, wait: wait{ahead: ahead}}, false, ""},
			"a delay that does not count yet": {
				&entry{stage: placed, wait: wait{ahead: ahead, delay: delay{time.Now().Add(1)}}}, false, "",
			},
		} {
			c.e.wait.e, c.e.q, c.e.ticket = c.e, q, &ticket{q: q, inSet: c.inSet}
			if got := c.e.wait.describe(canceled); got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
			if got := c.e.wait.describe(t.Context()); got != "" {
				t.Errorf("%s, of a call that was not canceled: %q", name, got)
			}
		}
	})
}
