package conformance_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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

// watched is what one watch has received. Events are compared one by one, since timing decides how many are in a
// response.
type watched struct {
	what   string
	mark   string // a key within its range
	late   bool   // it started in the past and may not have caught up
	cancel context.CancelFunc
	done   chan struct{} // closed when collect has returned

	mu     sync.Mutex // protects events, revs, end
	events []string
	revs   []int64 // of each event
	end    string  // the last response, if it was an error
}

// until returns the events up to a revision.
func (w *watched) until(rev int64) (events []string, end string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, _ := slices.BinarySearch(w.revs, rev+1)
	return slices.Clone(w.events[:n]), w.end
}

// reached reports whether the watch has an event of revision rev or later, or has ended.
func (w *watched) reached(rev int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.revs) > 0 && w.revs[len(w.revs)-1] >= rev || w.end != ""
}

func (d *differential) watchOperation() (string, do) {
	if n := len(d.sides[0].watches); n > 40 && d.chance(2) {
		i := d.rand.IntN(n)
		return "cancel a watch", func(_ context.Context, s *side) (proto.Message, error) {
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
	d.start = max(d.start, start)
	p.option(start != 0, fmt.Sprint("from ", start), clientv3.WithRev(start))
	p.option(d.chance(3), "prev", clientv3.WithPrevKV())
	// Not both: such a watch would never receive its mark.
	if d.chance(6) {
		p.option(true, "no puts", clientv3.WithFilterPut())
	} else {
		p.option(d.chance(6), "no deletes", clientv3.WithFilterDelete())
	}
	p.option(true, "created notify", clientv3.WithCreatedNotify())
	if end := clientv3.OpGet(key, p.opts...).RangeBytes(); len(end) > 0 && string(end) <= key && string(end) != "\x00" {
		// etcd rejects an empty range with a different error.
		p.opts, p.what = []clientv3.OpOption{clientv3.WithCreatedNotify()}, "watch of one key"
	}
	return p.what, func(_ context.Context, s *side) (proto.Message, error) {
		ctx, cancel := context.WithCancel(context.Background())
		w := &watched{
			what: p.what, mark: cmp.Or(key, "\x00"), late: start != 0 && start <= d.rev,
			cancel: cancel, done: make(chan struct{}),
		}
		responses := s.cli.Watch(ctx, key, p.opts...)
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
			w.events, w.revs = append(w.events, describeEvent(ev)), append(w.revs, ev.Kv.ModRevision)
		}
		if err := resp.Err(); err != nil {
			w.end = fmt.Sprintf("%v, compacted %d, canceled %v", err, resp.CompactRevision, resp.Canceled)
		}
		w.mu.Unlock()
	}
}

// describeEvent omits lease IDs, which differ between the sides.
func describeEvent(ev *clientv3.Event) string {
	m := &pb.WatchResponse{Events: []*clientv3.Event{ev}}
	m = proto.Clone(m).(*pb.WatchResponse)
	m.Events[0].Kv.Lease = 0
	if prev := m.Events[0].PrevKv; prev != nil {
		prev.Lease = 0
	}
	return prototext.Format(m)
}

// compareWatches checks that every watch has received the same events on both sides.
func (d *differential) compareWatches() {
	for d.rev < d.start { // so that every watch has started
		d.write(clientv3.OpPut("filler", ""))
	}
	marks := d.settle(func(*watched) bool { return true })
	for i, w := range d.sides[0].watches {
		fe, fend := w.until(marks[i])
		re, rend := d.sides[1].watches[i].until(marks[i])
		if slices.Equal(fe, re) && fend == rend {
			continue
		}
		n := 0
		for n < min(len(fe), len(re)) && fe[n] == re[n] {
			n++
		}
		d.t.Errorf("%s: after %d equal events\nfake: %d more, %q, %q\netcd: %d more, %q, %q", w.what, n,
			len(fe)-n, fe[n:min(n+2, len(fe))], fend, len(re)-n, re[n:min(n+2, len(re))], rend)
	}
}

// settle puts and deletes a mark in the range of each selected watch, and waits until both sides have received it. By
// then they have received all earlier events. (etcd serves a watch of past revisions with a delay of up to 100 ms.) It
// returns the revisions of the marks, one for each watch.
func (d *differential) settle(selected func(*watched) bool) (revs []int64) {
	d.t.Helper()
	marks := make(map[string]int64) // the revision of the put; the deletion follows
	for _, w := range d.sides[0].watches {
		if selected(w) && marks[w.mark] == 0 {
			marks[w.mark] = d.write(clientv3.OpPut(w.mark, "mark"))
			d.write(clientv3.OpDelete(w.mark))
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(30 * time.Second)
	for i, fake := range d.sides[0].watches {
		if !selected(fake) {
			continue
		}
		real := d.sides[1].watches[i]
		rev := marks[fake.mark]
		if strings.Contains(fake.what, "no puts") {
			rev++
		}
		for !fake.reached(rev) || !real.reached(rev) {
			if time.Now().After(deadline) {
				d.t.Fatalf("%s: the mark at revision %d is missing; fake has it: %v, etcd: %v",
					fake.what, rev, fake.reached(rev), real.reached(rev))
			}
			<-tick.C
		}
		fake.late = false
		revs = append(revs, rev)
	}
	return revs
}

// write runs op on both sides, and returns its revision.
func (d *differential) write(op clientv3.Op) int64 {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, s := range d.sides {
		resp, err := s.cli.Do(ctx, op)
		switch {
		case err != nil:
			d.t.Fatal(err)
		case op.IsPut():
			d.rev = resp.Put().Header.Revision
		default:
			d.rev = resp.Del().Header.Revision
		}
	}
	return d.rev
}

func TestWatchFromANegativeRevisionFailsAsInEtcd(t *testing.T) {
	fake := etcdfake.New(etcdfake.Options{})
	t.Cleanup(fake.Close)
	for name, cli := range map[string]*clientv3.Client{"fake": fake.Client(t), "etcd": etcdtest.Start(t).Client(t)} {
		responses := cli.Watch(t.Context(), "a", clientv3.WithRev(-1))
		if resp := <-responses; resp.Err() != rpctypes.ErrCompacted || !resp.Canceled {
			t.Errorf("%s: %+v", name, resp)
		}
		if resp, open := <-responses; open {
			t.Errorf("%s: it continues with %+v", name, resp)
		}
	}
}
