package etcdfake_test

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

// watched is what one watch has been told. Events are compared one by one:
// how many come in a response is a matter of time.
type watched struct {
	what   string
	mark   string // a key that it watches
	late   bool   // from the past, and perhaps not up to date yet
	cancel context.CancelFunc
	done   chan struct{} // closed when its channel was

	mu     sync.Mutex // protects what follows
	events []string
	revs   []int64 // of each event
	end    string  // the last response, if it was an error
}

// until is what it has been told up to a revision.
func (w *watched) until(rev int64) (events []string, end string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, _ := slices.BinarySearch(w.revs, rev+1)
	return slices.Clone(w.events[:n]), w.end
}

// through reports whether it has been told of a revision, or will be told
// nothing any more.
func (w *watched) through(rev int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.revs) > 0 && w.revs[len(w.revs)-1] >= rev || w.end != ""
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
	d.start = max(d.start, start)
	p.option(start != 0, fmt.Sprint("from ", start), clientv3.WithRev(start))
	p.option(d.chance(3), "prev", clientv3.WithPrevKV())
	// One of the two: a watch without either is told nothing, and no mark.
	if d.chance(6) {
		p.option(true, "no puts", clientv3.WithFilterPut())
	} else {
		p.option(d.chance(6), "no deletes", clientv3.WithFilterDelete())
	}
	p.option(true, "created notify", clientv3.WithCreatedNotify())
	if end := clientv3.OpGet(key, p.opts...).RangeBytes(); len(end) > 0 && string(end) <= key && string(end) != "\x00" {
		p.opts, p.what = []clientv3.OpOption{clientv3.WithCreatedNotify()}, "watch of one key" // an empty range is refused in other words
	}
	return p.what, func(_ context.Context, s *side) (proto.Message, error) {
		ctx, cancel := context.WithCancel(context.Background())
		w := &watched{what: p.what, mark: cmp.Or(key, "\x00"), late: start != 0 && start <= d.rev, cancel: cancel, done: make(chan struct{})}
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

// compareWatches wants every watch to have been told the same on both sides.
func (d *duel) compareWatches() {
	for d.rev < d.start { // or some watches have not begun
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

// settle puts and deletes a mark under the watches that are meant, and waits
// until both sides have been told: what comes before the mark has come by then,
// and what should not have come as well. (Etcd serves a watch from the past up
// to 100 ms late.) It returns the revision of the mark for each watch.
func (d *duel) settle(meant func(*watched) bool) (revs []int64) {
	d.t.Helper()
	marks := make(map[string]int64) // the revision of the put; the deletion follows
	for _, w := range d.sides[0].watches {
		if meant(w) && marks[w.mark] == 0 {
			marks[w.mark] = d.write(clientv3.OpPut(w.mark, "mark"))
			d.write(clientv3.OpDelete(w.mark))
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(30 * time.Second)
	for i, fake := range d.sides[0].watches {
		if !meant(fake) {
			continue
		}
		real := d.sides[1].watches[i]
		rev := marks[fake.mark]
		if strings.Contains(fake.what, "no puts") {
			rev++
		}
		for !fake.through(rev) || !real.through(rev) {
			if time.Now().After(deadline) {
				d.t.Fatalf("%s: the mark at revision %d has not come; the fake has it: %v, etcd: %v", fake.what, rev, fake.through(rev), real.through(rev))
			}
			<-tick.C
		}
		fake.late = false
		revs = append(revs, rev)
	}
	return revs
}

// write does the same on both sides, and returns the revision.
func (d *duel) write(op clientv3.Op) int64 {
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
