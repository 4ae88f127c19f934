package queue

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/places"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// What the put has read says who holds only where that is certain.
func TestPlaceByTheReplyToThePut(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		kv := &mvccpb.KeyValue{Key: []byte("ahead"), CreateRevision: 3}
		for _, c := range []struct {
			q      *Queue
			count  int64
			known  bool
			holder bool
		}{
			{p.queue("x"), 1, true, true},
			{p.queue("x"), 2, true, false},
			{p.readers("x"), 1, true, false}, // a writer ahead of a reader may wait for other readers
			{p.readers("x"), 2, true, false},
		} {
			tk := newTicket(c.q, Request{})
			tk.saw(places.ReadPut(c.q.Scope, &pb.RangeResponse{Count: c.count, Kvs: []*mvccpb.KeyValue{kv}}, nil))
			place := tk.knownAhead()
			if place.Known() != c.known || place.Ahead != int(c.count) || (place.Holder.Key != "") != c.holder {
				t.Errorf("%d ahead, of a reader %v: %+v", c.count, c.q.Reader, place)
			}
		}
	})
}

// An entry that holds, or that nothing is ahead of, has nothing to find out when it leaves.
func TestOnlyAnEntryThatWaitsLooksWhoIsAhead(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := start(t, srv).queue("x")
		kv := &mvccpb.KeyValue{Key: []byte("ahead"), CreateRevision: 3}
		for _, c := range []struct {
			e    *entry
			want int
		}{
			{&entry{stage: created}, 0},
			{&entry{stage: placed}, 0},
			{&entry{stage: placed, wait: wait{ahead: kv}}, 3},
			{&entry{stage: held}, 0},
			{&entry{stage: held, wait: wait{ahead: kv}}, 0},
		} {
			var ask txns.Ops
			c.e.wait.e, c.e.rev, c.e.ticket = c.e, 9, newTicket(q, Request{})
			if c.e.wait.look(&ask); len(ask) != c.want {
				t.Errorf("at stage %v, behind %v: %d operations, want %d", c.e.stage, c.e.wait.ahead, len(ask), c.want)
			}
		}
	})
}
