package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func TestReadersHoldTogetherAndWritersAlone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		one, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		first, second := holdtest.MustAcquire(t, one.Readers("x")), holdtest.MustAcquire(t, other.Readers("x"))
		third := holdtest.MustAcquire(t, one.Readers("x")) // of the same session
		writer := holdtest.AcquireLater(ctx, other.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 4)
		late := holdtest.AcquireLater(ctx, one.Readers("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 5)
		holdtest.StaysQueued(t, writer, "the writer")
		holdtest.StaysQueued(t, late, "the reader behind the writer")

		holdtest.MustRelease(t, third)
		holdtest.MustRelease(t, first)
		holdtest.StaysQueued(t, writer, "the writer")
		holdtest.MustRelease(t, second)
		w := <-writer
		if w.Err != nil {
			t.Fatal(w.Err)
		}
		holdtest.Delayed(t, w, srv, second.Key(), false)
		holdtest.StaysQueued(t, late, "the reader behind the writer")
		holdtest.MustRelease(t, w.H)
		holdtest.MustRelease(t, (<-late).H)
	})
}

// A reader waits for the nearest writer. It is not woken by readers, a writer at most
// once for each reader ahead.
func TestRequestsOfReadersAndOfAWriterBehindThem(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		var readers []*kit.Peer
		for range 5 {
			readers = append(readers, kit.JoinReader(t, srv, holdtest.EntriesX))
		}
		p := holdtest.Start(t, srv)
		p.Plan(nil)
		h := holdtest.MustAcquire(t, p.Readers("x"))
		if n := p.Counts(); n["enqueue"] != 1 || n["watch"]+n["read"] != 0 {
			t.Errorf("a reader behind readers sent %v, want one enqueue", n)
		}
		holdtest.MustRelease(t, h)
		writer := holdtest.AcquireLater(ctx, p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 6)
		behind := holdtest.Start(t, srv)
		last := holdtest.AcquireLater(ctx, behind.Readers("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 7)
		p.Plan(nil)
		behind.Plan(nil)
		for _, i := range []int{1, 3, 0, 2, 4} { // the youngest stands longest
			readers[i].Release()
			time.Sleep(kit.OneWay)
		}
		w := <-writer
		if w.Err != nil {
			t.Fatal(w.Err)
		}
		holdtest.Delayed(t, w, srv, readers[4].Key, false)
		if n := p.Counts(); n["event"] != 1 || n["read"] != 1 || n["watch"] != 0 {
			t.Errorf("the writer was sent and sent %v, want one event and one read", n)
		}
		if n := behind.Counts(); n["event"] != 0 {
			t.Errorf("the reader behind the writer was woken: %v", n)
		}
		holdtest.MustRelease(t, w.H)
		holdtest.MustRelease(t, (<-last).H)
	})
}

// Several readers hold, so the one that goes last says nothing of the others. The delay counts from the look that shows
// the claim of the one whose lease was revoked, though others stand ahead yet.
func TestWriterDelaysIfAnyReaderAheadWasRevoked(t *testing.T) {
	for name, order := range map[string][]int{
		"oldest first": {0, 1, 2}, "youngest first": {2, 1, 0}, "the middle one last": {0, 2, 1},
	} {
		for revoked := range 4 {
			t.Run(fmt.Sprintf("%s, revoked %d", name, revoked), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := holdtest.Start(t, srv)
					var readers []*kit.Peer
					for range 3 {
						readers = append(readers, kit.JoinReader(t, srv, holdtest.EntriesX))
					}
					done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
					kit.Queued(t, srv, holdtest.EntriesX, 4)
					time.Sleep(time.Second) // the writer knows what is ahead
					left := time.Now()
					for _, i := range order {
						if i == revoked {
							readers[i].Revoke()
						} else {
							readers[i].Release()
						}
						time.Sleep(kit.LockDelay / 10)
					}
					r := <-done
					if r.Err != nil {
						t.Fatal(r.Err)
					}
					want := left.Add(2 * kit.LockDelay / 10)
					if revoked < 3 {
						want = left.Add(time.Duration(seen(order, revoked))*kit.LockDelay/10 + kit.LockDelay)
					}
					if late := r.At.Sub(want); late < 0 || late > kit.Prompt/2 {
						t.Errorf("granted %v after it was due", late)
					}
				})
			})
		}
	}
}

// seen returns the step at which the writer sees that one of the readers has gone: all younger ones have, too.
func seen(order []int, reader int) (step int) {
	for i, other := range order {
		if other >= reader {
			step = i
		}
	}
	return step
}

// The place of a writer that gives up goes to the next in its line, who must learn of
// the readers that are gone.
func TestNextInAWritersLineDelaysIfAReaderWasRevoked(t *testing.T) {
	for _, told := range []bool{false, true} { // the writer has read what is ahead before it gives up
		for _, revoke := range []bool{false, true} {
			for _, heard := range []bool{false, true} { // the next hears how the last reader goes
				t.Run(fmt.Sprintf("read before %v, revoked %v, heard %v", told, revoke, heard), func(t *testing.T) {
					etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
						p := holdtest.Start(t, srv)
						gone, stays := kit.JoinReader(t, srv, holdtest.EntriesX), kit.JoinReader(t, srv, holdtest.EntriesX)
						if !told {
							p.PlanOne("watch", etcdfake.Fate{Request: 10 * kit.OneWay})
						}
						next := p.GiveUpToNext(t, srv, func() {
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
						holdtest.Delayed(t, <-next, srv, stays.Key, revoke)
					})
				})
			}
		}
	}
}

// The next in the line queues at the back, behind readers that the writer was ahead of.
func TestNextInAWritersLineDelaysIfALaterReaderWasRevoked(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		stays, other := kit.JoinReader(t, srv, holdtest.EntriesX), kit.JoinReader(t, srv, holdtest.EntriesX)
		var late *kit.Peer
		next := p.GiveUpToNext(t, srv, func() { late = kit.JoinReader(t, srv, holdtest.EntriesX) })
		late.Revoke()
		revoked := time.Now()
		other.Release()
		time.Sleep(kit.LockDelay / 2)
		stays.Release()
		r := <-next
		if took := r.At.Sub(revoked); r.Err != nil || took < kit.LockDelay || took > kit.LockDelay+kit.Prompt {
			t.Errorf("granted %v after the revocation: %v", took, r.Err)
		}
	})
}

// What the writer has waited for before it held is none of the next one's concern.
func TestNextInAWritersLineDoesNotDelayForAReaderThatWasWaitedFor(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		gone, stays := kit.JoinReader(t, srv, holdtest.EntriesX), kit.JoinReader(t, srv, holdtest.EntriesX)
		first := holdtest.AcquireLater(kit.Within(t, time.Hour), p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		time.Sleep(time.Second) // it has read what is ahead
		gone.Revoke()
		stays.Release()
		held := <-first
		holdtest.Delayed(t, held, srv, stays.Key, true)
		next := holdtest.AcquireLater(kit.Within(t, time.Hour), p.Queue("x"))
		synctest.Wait() // it is in the line
		between := kit.Join(t, srv, holdtest.EntriesX)
		holdtest.MustRelease(t, held.H)
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		time.Sleep(kit.LockDelay / 2) // it cannot know yet that the reader went longer ago than a lock delay
		between.Release()
		holdtest.Delayed(t, <-next, srv, between.Key, false)
	})
}

func TestTryAcquireAmongReadersAndWriters(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		one, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		try := func(q *queue.Queue, want error) *hold.Hold {
			t.Helper()
			h, err := holdtest.TryAcquire(ctx, q)
			if !errors.Is(err, want) {
				t.Errorf("TryAcquire: %v, want %v", err, want)
			}
			return h
		}
		first := try(one.Readers("x"), nil)
		second := try(other.Readers("x"), nil)
		third := try(one.Readers("x"), nil)
		try(one.Queue("x"), queue.ErrOccupied)
		try(other.Queue("x"), queue.ErrOccupied)
		holdtest.MustRelease(t, first)
		holdtest.MustRelease(t, second)
		try(one.Queue("x"), queue.ErrOccupied) // by a reader of the same session
		holdtest.MustRelease(t, third)
		writer := try(one.Queue("x"), nil)
		try(one.Readers("x"), queue.ErrOccupied)
		try(other.Readers("x"), queue.ErrOccupied)
		holdtest.MustRelease(t, writer)
		holdtest.MustRelease(t, try(other.Readers("x"), nil))
		kit.NothingStands(t, srv)
	})
}

// inBatches calls f while a process has so many Txns in flight that others are batched, and checks that some are.
func inBatches(t *testing.T, f func(ctx context.Context, t *testing.T, srv *etcdfake.Server, p *holdtest.Process)) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := holdtest.Start(t, srv)
		p.PlanAll("enqueue", etcdfake.Fate{Reply: holdtest.MaxWait / 2})
		others := holdtest.AcquireAll(ctx, p, holdtest.MaxInFlight+1) // the last one waits in a batch
		synctest.Wait()
		var sent sentTxns
		sent.watch(p, nil)
		f(ctx, t, srv, p)
		if sizes := sent.take(); slices.Max(sizes) < 3 {
			t.Errorf("sent Txns of sizes %v, want a batch of the last, the writer and its company", sizes)
		}
		for _, h := range holdtest.MustHold(t, srv, others) {
			holdtest.MustRelease(t, h)
		}
	})
}

// Two Txns of one batch would have one create revision, and neither would see the other.
func TestReaderIsNeverBatchedWithAWriterOfItsQueue(t *testing.T) {
	inBatches(t, func(ctx context.Context, t *testing.T, srv *etcdfake.Server, p *holdtest.Process) {
		reader, writer := holdtest.AcquireLater(ctx, p.Readers("x")), holdtest.AcquireLater(ctx, p.Queue("x"))
		company := holdtest.AcquireLater(ctx, p.Queue("y"))
		var r holdtest.Result
		second := writer
		select {
		case r = <-reader:
		case r = <-writer:
			second = reader
		}
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		holdtest.StaysQueued(t, second, "the other")
		holdtest.MustRelease(t, r.H)
		holdtest.MustRelease(t, (<-second).H)
		holdtest.MustRelease(t, holdtest.Granted(t, srv, company).H)
	})
}

// etcd's own lock waits for every entry that was created before its own.
func TestReadersAtAForeignPrefixAndItsOwnLocksExcludeEachOther(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		theirs := kit.JoinAs(t, srv, "theirs/x/", func(id clientv3.LeaseID) string { return fmt.Sprintf("%x", int64(id)) })
		p := holdtest.Start(t, srv)
		reader := holdtest.AcquireLater(kit.Within(t, time.Minute), p.QueueAt("theirs/x").Readers())
		holdtest.StaysQueued(t, reader, "the reader")
		theirs.Release()
		r := <-reader
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if kvs := srv.Keys("theirs/x/"); len(kvs) != 1 || string(kvs[0].Key) != r.H.Key() {
			t.Errorf("%s is held, and in etcd stand %v", r.H.Key(), kit.KeysOf(kvs))
		}
		holdtest.MustRelease(t, r.H)
	})
}
