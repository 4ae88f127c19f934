package etcdfake_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/etcdtest"
)

// watched is what one watch has been told. Events are compared one by one:
// how many come in a response is a matter of time.
type watched struct {
	what   string
	cancel context.CancelFunc
	done   chan struct{} // closed when its channel was

	mu     sync.Mutex // protects what follows
	events []string
	end    string // the last response, if it was an error
}

func (w *watched) state() (events []string, end string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events), w.end
}

func (d *duel) watchOperation() (string, do) {
	if n := len(d.sides[0].watches); n > 40 && d.chance(2) {
		i := d.rand.IntN(n)
		return "cancel a watch", func(_ context.Context, s *side) (proto.Message, error) {
			// What it has been told by now is a matter of time.
			s.watches[i].cancel()
			<-s.watches[i].done
			s.watches = slices.Delete(s.watches, i, i+1)
			return nil, nil
		}
	}
	key := d.key()
	p := &plain{what: fmt.Sprintf("watch %q", key)}
	d.scope(p)
	start := int64(0)
	switch d.rand.IntN(8) {
	case 0, 1, 2:
		start = max(1, d.rev-d.rand.Int64N(50))
	case 3:
		start = d.rev + d.rand.Int64N(20)
	}
	p.option(start != 0, fmt.Sprint("from ", start), clientv3.WithRev(start))
	p.option(d.chance(3), "prev", clientv3.WithPrevKV())
	p.option(d.chance(6), "no puts", clientv3.WithFilterPut())
	p.option(d.chance(6), "no deletes", clientv3.WithFilterDelete())
	p.option(true, "created notify", clientv3.WithCreatedNotify())
	if end := clientv3.OpGet(key, p.opts...).RangeBytes(); len(end) > 0 && string(end) <= key && string(end) != "\x00" {
		p.opts, p.what = []clientv3.OpOption{clientv3.WithCreatedNotify()}, "watch of one key" // an empty range is refused in other words
	}
	return p.what, func(_ context.Context, s *side) (proto.Message, error) {
		ctx, cancel := context.WithCancel(context.Background())
		w := &watched{what: p.what, cancel: cancel, done: make(chan struct{})}
		responses := s.cli.Watch(ctx, key, p.opts...)
		if start != 0 {
			d.past = time.Now()
		}
		first := <-responses
		d.t.Cleanup(func() { cancel(); <-w.done })
		go w.collect(responses) // joined in the cleanup
		s.watches = append(s.watches, w)
		if err := first.Err(); err != nil {
			return nil, err
		}
		return &pb.WatchResponse{Header: first.Header, Created: first.Created, Canceled: first.Canceled}, nil
	}
}

func (w *watched) collect(responses clientv3.WatchChan) {
	defer close(w.done)
	for resp := range responses {
		w.mu.Lock()
		for _, ev := range resp.Events {
			w.events = append(w.events, describeEvent(ev))
		}
		if err := resp.Err(); err != nil {
			w.end = fmt.Sprintf("%v, compacted %d, canceled %v", err, resp.CompactRevision, resp.Canceled)
		}
		w.mu.Unlock()
	}
}

// describeEvent leaves the lease out: it has another name on each side.
func describeEvent(ev *clientv3.Event) string {
	m := &pb.WatchResponse{Events: []*clientv3.Event{ev}}
	m = proto.Clone(m).(*pb.WatchResponse)
	m.Events[0].Kv.Lease = 0
	if prev := m.Events[0].PrevKv; prev != nil {
		prev.Lease = 0
	}
	return prototext.Format(m)
}

// compareWatches waits until etcd has told its watches as much as they were
// told here, and then a little for what would be too much.
func (d *duel) compareWatches() {
	d.settle()
	time.Sleep(250 * time.Millisecond)
	for i, w := range d.sides[0].watches {
		if d.same(i) {
			continue
		}
		fe, fend := w.state()
		re, rend := d.sides[1].watches[i].state()
		n := 0
		for n < min(len(fe), len(re)) && fe[n] == re[n] {
			n++
		}
		d.t.Errorf("%s: after %d equal events\nfake: %d more, %q, %q\netcd: %d more, %q, %q", w.what, n,
			len(fe)-n, fe[n:min(n+2, len(fe))], fend, len(re)-n, re[n:min(n+2, len(re))], rend)
	}
}

// same reports whether one watch has been told the same on both sides.
func (d *duel) same(i int) bool {
	fe, fend := d.sides[0].watches[i].state()
	re, rend := d.sides[1].watches[i].state()
	return slices.Equal(fe, re) && fend == rend
}

// settle waits until all watches have, for as long as that can be expected to
// take. etcd serves a watch from the past with up to 100 ms delay, and that is
// not seen if there is nothing to serve.
func (d *duel) settle() {
	time.Sleep(time.Until(d.past.Add(300 * time.Millisecond)))
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		all := true
		for i := range d.sides[0].watches {
			all = all && d.same(i)
		}
		if all {
			return
		}
	}
}

func TestWatchFromANegativeRevisionIsRefusedAsInEtcd(t *testing.T) {
	fake := etcdfake.New(nil)
	t.Cleanup(fake.Close)
	for name, cli := range map[string]*clientv3.Client{"fake": fake.Client(), "etcd": etcdtest.Start(t).Client(t)} {
		responses := cli.Watch(t.Context(), "a", clientv3.WithRev(-1))
		if resp := <-responses; resp.Err() != rpctypes.ErrCompacted || !resp.Canceled {
			t.Errorf("%s: %+v", name, resp)
		}
		if resp, open := <-responses; open {
			t.Errorf("%s: goes on with %+v", name, resp)
		}
	}
}
