package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// readers is the queue of a lock as readers use it.
func (p *process) readers(lock string) *Queue { return p.queue(lock).Readers() }

// staysQueued fails the test if the call returns although time passes.
func staysQueued(t *testing.T, done <-chan result, who string) {
	t.Helper()
	time.Sleep(kit.LockDelay)
	select {
	case r := <-done:
		t.Fatalf("%s was granted (error %v) while a conflicting entry stood ahead", who, r.err)
	default:
	}
}

func TestReadersHoldTogetherAndWritersAlone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		one, other := start(t, srv), start(t, srv)
		first, second := mustAcquire(t, one.readers("x")), mustAcquire(t, other.readers("x"))
		third := mustAcquire(t, one.readers("x")) // of the same session
		writer := acquireLater(ctx, other.queue("x"))
		kit.Queued(t, srv, entriesX, 4)
		late := acquireLater(ctx, one.readers("x"))
		kit.Queued(t, srv, entriesX, 5)
		staysQueued(t, writer, "the writer")
		staysQueued(t, late, "the reader behind the writer")

		mustRelease(t, third)
		mustRelease(t, first)
		staysQueued(t, writer, "the writer")
		mustRelease(t, second)
		w := <-writer
		if w.err != nil {
			t.Fatal(w.err)
		}
		delayed(t, w, srv, second.Key(), false)
		staysQueued(t, late, "the reader behind the writer")
		mustRelease(t, w.h)
		mustRelease(t, (<-late).h)
	})
}

// A reader waits for the nearest writer. It is not woken by readers, a writer at most
// once for each reader ahead.
func TestRequestsOfReadersAndOfAWriterBehindThem(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		var readers []*kit.Peer
		for range 5 {
			readers = append(readers, kit.JoinReader(t, srv, entriesX))
		}
		p := start(t, srv)
		p.Plan(nil)
		h := mustAcquire(t, p.readers("x"))
		if n := p.Counts(); n["enqueue"] != 1 || n["watch"]+n["read"] != 0 {
			t.Errorf("a reader behind readers sent %v, want one enqueue", n)
		}
		mustRelease(t, h)
		writer := acquireLater(ctx, p.queue("x"))
		kit.Queued(t, srv, entriesX, 6)
		behind := start(t, srv)
		last := acquireLater(ctx, behind.readers("x"))
		kit.Queued(t, srv, entriesX, 7)
		p.Plan(nil)
		behind.Plan(nil)
		for _, i := range []int{1, 3, 0, 2, 4} { // the youngest stands longest
			readers[i].Release()
			time.Sleep(kit.OneWay)
		}
		w := <-writer
		if w.err != nil {
			t.Fatal(w.err)
		}
		delayed(t, w, srv, readers[4].Key, false)
		if n := p.Counts(); n["event"] != 1 || n["read"] != 1 || n["watch"] != 0 {
			t.Errorf("the writer was sent and sent %v, want one event and one read", n)
		}
		if n := behind.Counts(); n["event"] != 0 {
			t.Errorf("the reader behind the writer was woken: %v", n)
		}
		mustRelease(t, w.h)
		mustRelease(t, (<-last).h)
	})
}

// Several readers hold, so the one that goes last says nothing of the others.
func TestWriterDelaysIfAnyReaderAheadWasRevoked(t *testing.T) {
	for name, order := range map[string][]int{
		"oldest first": {0, 1, 2}, "youngest first": {2, 1, 0}, "the middle one last": {0, 2, 1},
	} {
		for revoked := range 4 {
			t.Run(fmt.Sprintf("%s, revoked %d", name, revoked), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := start(t, srv)
					var readers []*kit.Peer
					for range 3 {
						readers = append(readers, kit.JoinReader(t, srv, entriesX))
					}
					done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
					kit.Queued(t, srv, entriesX, 4)
					time.Sleep(time.Second) // the writer knows what is ahead
					for _, i := range order {
						if i == revoked {
							readers[i].Revoke()
						} else {
							readers[i].Release()
						}
						time.Sleep(kit.LockDelay / 10)
					}
					delayed(t, <-done, srv, readers[order[2]].Key, revoked < 3)
				})
			})
		}
	}
}

// The place of a writer that gives up goes to the next in its line, who must learn of
// the readers that are gone.
func TestNextInAWritersLineDelaysIfAReaderWasRevoked(t *testing.T) {
	for _, told := range []bool{false, true} { // the writer has read what is ahead before it gives up
		for _, revoke := range []bool{false, true} {
			for _, heard := range []bool{false, true} { // the next hears how the last reader goes
				t.Run(fmt.Sprintf("read before %v, revoked %v, heard %v", told, revoke, heard), func(t *testing.T) {
					etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
						p := start(t, srv)
						gone, stays := kit.JoinReader(t, srv, entriesX), kit.JoinReader(t, srv, entriesX)
						if !told {
							p.PlanOne("watch", etcdfake.Fate{Request: time.Second / 2})
						}
						next := p.giveUpToNext(t, srv, func() {
							if revoke {
								gone.Revoke()
							} else {
								gone.Release()
							}
						})
						if heard {
							stays.Release()
						} else {
							p.Unheard(srv, stays.Release)
						}
						delayed(t, <-next, srv, stays.Key, revoke)
					})
				})
			}
		}
	}
}

// giveUpToNext has a writer wait and then give up, and returns what the next in its line
// gets, whose entry is queued by then. happens is called before the writer gives up.
func (p *process) giveUpToNext(t *testing.T, srv *etcdfake.Server, happens func()) <-chan result {
	t.Helper()
	ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
	writer := acquireLater(ctx, p.queue("x"))
	before := len(srv.Keys(entriesX))
	kit.Queued(t, srv, entriesX, before+1)
	next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
	time.Sleep(kit.OneWay)
	happens()
	time.Sleep(kit.OneWay)
	giveUp()
	<-writer
	time.Sleep(20 * kit.OneWay)
	p.Plan(nil)
	return next
}

// The next in the line queues at the back, behind readers that the writer was ahead of.
func TestNextInAWritersLineDelaysIfALaterReaderWasRevoked(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		stays, other := kit.JoinReader(t, srv, entriesX), kit.JoinReader(t, srv, entriesX)
		var late *kit.Peer
		next := p.giveUpToNext(t, srv, func() { late = kit.JoinReader(t, srv, entriesX) })
		late.Revoke()
		other.Release()
		time.Sleep(time.Second)
		stays.Release()
		delayed(t, <-next, srv, stays.Key, true)
	})
}

func TestWriterDelaysIfItCannotKnowTheReadersAhead(t *testing.T) {
	t.Run("more than sixty-four", func(t *testing.T) {
		for n, delay := range map[int]bool{maxJudged: false, maxJudged + 1: true} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					var readers []*kit.Peer
					for range n {
						readers = append(readers, kit.JoinReader(t, srv, entriesX))
					}
					done := acquireLater(kit.Within(t, time.Minute), start(t, srv).queue("x"))
					kit.Queued(t, srv, entriesX, n+1)
					time.Sleep(time.Second)
					for _, r := range readers {
						r.Release()
					}
					delayed(t, <-done, srv, readers[n-1].Key, delay)
				})
			})
		}
	})
	t.Run("compacted", func(t *testing.T) {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := start(t, srv)
			first, last := kit.JoinReader(t, srv, entriesX), kit.JoinReader(t, srv, entriesX)
			p.PlanOne("watch", etcdfake.Fate{Request: time.Second / 2})
			done := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
			kit.Queued(t, srv, entriesX, 3)
			first.Release()
			srv.Put("other", "")
			srv.Compact()
			time.Sleep(time.Second)
			last.Release()
			delayed(t, <-done, srv, last.Key, true)
		})
	})
}

func TestTryAcquireAmongReadersAndWriters(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		one, other := start(t, srv), start(t, srv)
		try := func(q *Queue, want error) *Hold {
			t.Helper()
			h, err := q.TryAcquire(ctx, Request{})
			if !errors.Is(err, want) {
				t.Errorf("TryAcquire: %v, want %v", err, want)
			}
			return h
		}
		first := try(one.readers("x"), nil)
		second := try(other.readers("x"), nil)
		third := try(one.readers("x"), nil)
		try(one.queue("x"), ErrOccupied)
		try(other.queue("x"), ErrOccupied)
		mustRelease(t, first)
		mustRelease(t, second)
		try(one.queue("x"), ErrOccupied) // by a reader of the same session
		mustRelease(t, third)
		writer := try(one.queue("x"), nil)
		try(one.readers("x"), ErrOccupied)
		try(other.readers("x"), ErrOccupied)
		mustRelease(t, writer)
		mustRelease(t, try(other.readers("x"), nil))
		kit.NothingStands(t, srv)
	})
}

// A reader of this session that could not be removed is no lock.
func TestTryAcquireTellsALeftoverReaderFromALock(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		h := mustAcquire(t, p.readers("x"))
		p.PlanAll("remove", silence)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Release(ctx); err == nil {
			t.Fatal("Release was answered")
		}
		if _, err := p.queue("x").TryAcquire(kit.Within(t, time.Minute), Request{}); !errors.Is(err, ErrUnconfirmed) {
			t.Errorf("TryAcquire: %v, want ErrUnconfirmed", err)
		}
		p.Plan(nil)
	})
}

// inBatches calls f while a process has so many Txns in flight that others are batched, and checks that some are.
func inBatches(t *testing.T, f func(ctx context.Context, t *testing.T, srv *etcdfake.Server, p *process)) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := start(t, srv)
		p.PlanAll("enqueue", etcdfake.Fate{Reply: txns.MaxWait / 2})
		others := acquireAll(ctx, p, txns.MaxInFlight+1) // the last one waits in a batch
		synctest.Wait()
		var sent sentTxns
		sent.watch(p, nil)
		f(ctx, t, srv, p)
		if sizes := sent.take(); slices.Max(sizes) < 3 {
			t.Errorf("sent Txns of sizes %v, want a batch of the last, the writer and its company", sizes)
		}
		for _, h := range mustHold(t, srv, others) {
			mustRelease(t, h)
		}
	})
}

// Two Txns of one batch would have one create revision, and neither would see the other.
func TestReaderIsNeverBatchedWithAWriterOfItsQueue(t *testing.T) {
	inBatches(t, func(ctx context.Context, t *testing.T, srv *etcdfake.Server, p *process) {
		reader, writer := acquireLater(ctx, p.readers("x")), acquireLater(ctx, p.queue("x"))
		company := acquireLater(ctx, p.queue("y"))
		var r result
		second := writer
		select {
		case r = <-reader:
		case r = <-writer:
			second = reader
		}
		if r.err != nil {
			t.Fatal(r.err)
		}
		staysQueued(t, second, "the other")
		mustRelease(t, r.h)
		mustRelease(t, (<-second).h)
		mustRelease(t, granted(t, srv, company).h)
	})
}

// etcd's own lock waits for every entry that was created before its own.
func TestReadersAtAForeignPrefixAndItsOwnLocksExcludeEachOther(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		theirs := kit.JoinAs(t, srv, "theirs/x/", func(id clientv3.LeaseID) string { return fmt.Sprintf("%x", int64(id)) })
		p := start(t, srv)
		reader := acquireLater(kit.Within(t, time.Minute), p.queueAt("theirs/x").Readers())
		staysQueued(t, reader, "the reader")
		theirs.Release()
		r := <-reader
		if r.err != nil {
			t.Fatal(r.err)
		}
		if kvs := srv.Keys("theirs/x/"); len(kvs) != 1 || string(kvs[0].Key) != r.h.Key() {
			t.Errorf("%s is held, and in etcd stand %v", r.h.Key(), kit.KeysOf(kvs))
		}
		mustRelease(t, r.h)
	})
}

// So many sessions are judged one by one. Of more, one is presumed to have ended.
func TestOthersAheadAreRememberedUpToABound(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := start(t, srv).queue("x")
		entry := func(lease int) *mvccpb.KeyValue {
			return &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%s!s%x-AAAAAAAAAAAAAAAA", entriesX, lease+1)}
		}
		var r othersAhead
		for i := range maxJudged {
			r = r.with(q, []*mvccpb.KeyValue{entry(i), entry(i)})
		}
		if r.unknown || len(r.sessions) != maxJudged {
			t.Errorf("of %d sessions %d are remembered, unknown %v", maxJudged, len(r.sessions), r.unknown)
		}
		if r = r.with(q, []*mvccpb.KeyValue{entry(maxJudged)}); !r.unknown || len(r.sessions) != 0 {
			t.Errorf("of %d sessions %d are remembered, unknown %v", maxJudged+1, len(r.sessions), r.unknown)
		}
	})
}
