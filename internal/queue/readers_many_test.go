package queue_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// That the sessions of the readers ahead have ended, and held nothing then, does not acquit the writer that went last.
func TestWriterDelaysIfTheWriterAheadWasRevokedAfterReadersHadLeft(t *testing.T) {
	for _, revoked := range []bool{true, false} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := holdtest.Start(t, srv)
			reader, writer := kit.JoinReader(t, srv, holdtest.EntriesX), kit.Join(t, srv, holdtest.EntriesX)
			done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
			kit.Queued(t, srv, holdtest.EntriesX, 3)
			time.Sleep(time.Second) // the one that waits knows what is ahead
			reader.Release()
			time.Sleep(kit.LockDelay)
			srv.Revoke(reader.Lease) // as its session is closed
			time.Sleep(kit.LockDelay)
			if revoked {
				writer.Revoke()
			} else {
				writer.Release()
			}
			holdtest.Delayed(t, <-done, srv, writer.Key, revoked)
		})
	}
}

// A writer watches the youngest reader ahead, so it is woken most often if the youngest goes first.
func TestWriterBehindAThousandReadersIsWokenOnceForEachAtMost(t *testing.T) {
	n := 1000
	if bubble.Race {
		n = 150 // CI tests all of them without the race detector
	}
	const pause = 8 * kit.OneWay
	rechecks := int(time.Duration(n)*pause/queue.RecheckAfter) + 1 // of a watch that is silent
	random := rand.New(rand.NewPCG(1, 2)).Perm(n)
	for name, c := range map[string]struct {
		next func(i int) int
		most int
	}{
		"oldest first":   {func(i int) int { return i }, 1},
		"youngest first": {func(i int) int { return n - 1 - i }, n},
		"random":         {func(i int) int { return random[i] }, 20},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var readers []*kit.Peer
				for range n {
					readers = append(readers, kit.JoinReader(t, srv, holdtest.EntriesX))
				}
				p, behind := holdtest.Start(t, srv), holdtest.Start(t, srv)
				writer := holdtest.AcquireLater(kit.Within(t, time.Hour), p.Queue("x"))
				kit.Queued(t, srv, holdtest.EntriesX, n+1)
				last := holdtest.AcquireLater(kit.Within(t, time.Hour), behind.Readers("x"))
				kit.Queued(t, srv, holdtest.EntriesX, n+2)
				time.Sleep(time.Second)
				p.Plan(nil)
				behind.Plan(nil)
				for i := range n {
					readers[c.next(i)].Release()
					time.Sleep(pause)
				}
				w := holdtest.Granted(t, srv, writer)
				// Each wake-up but the last is followed by a watch of the next reader ahead.
				if sent := p.Counts(); sent["watch"] >= c.most || sent["read"] > 2*c.most+rechecks {
					t.Errorf("the writer sent %v, want to be woken %d times at most", sent, c.most)
				}
				if sent := behind.Counts(); sent["watch"] != 0 || sent["read"] > rechecks {
					t.Errorf("the reader behind the writer sent %v: it was woken by readers", sent)
				}
				holdtest.MustRelease(t, w.H)
				holdtest.MustRelease(t, (<-last).H)
			})
		})
	}
}

// Counted is who gets in, not when.
func TestStreamOfReadersDoesNotPassAWriter(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		sessions := []*holdtest.Process{holdtest.Start(t, srv), holdtest.Start(t, srv), holdtest.Start(t, srv)}
		const before, after = 30, 200
		got := make(chan holdtest.Result, before+after)
		read := func(i int) {
			go func() {
				h, err := hold.Acquire(ctx, sessions[i%len(sessions)].Readers("x"), hold.Request{})
				got <- holdtest.Result{H: h, Err: err, At: time.Now()}
				time.Sleep(50 * kit.OneWay)
				if err == nil {
					err = h.Release(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			}()
			time.Sleep(kit.OneWay)
		}
		for i := range before {
			read(i)
		}
		writer := holdtest.AcquireLater(ctx, sessions[0].Queue("x"))
		time.Sleep(2 * kit.OneWay)
		for i := range after {
			read(i)
		}
		w := holdtest.Granted(t, srv, writer)
		put := w.H.Token().Revision()
		if n := len(got); n > before+2 {
			t.Errorf("%d readers got in before the writer, of which %d came before it", n, before)
		}
		holdtest.MustRelease(t, w.H)
		for range before + after {
			r := <-got
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if r.At.Before(w.At) && r.H.Created() > put {
				t.Errorf("a reader that queued at %d passed the writer that queued at %d", r.H.Created(), put)
			}
		}
		time.Sleep(time.Minute)
		kit.NothingStands(t, srv)
	})
}

// Each waits for those that are ahead of it, and the readers that follow one another hold together.
func TestLocksOfEtcdsOwnClientsBetweenReaders(t *testing.T) {
	const prefix = "theirs/x/"
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		ours := func(p *holdtest.Process) *queue.Queue { return p.QueueAt("theirs/x").Readers() }
		first, second := holdtest.MustAcquire(t, ours(p)), holdtest.MustAcquire(t, ours(other))
		theirs := kit.JoinAs(t, srv, prefix, func(id clientv3.LeaseID) string { return fmt.Sprintf("%x", int64(id)) })
		third := holdtest.AcquireLater(kit.Within(t, time.Minute), ours(p))
		fourth := holdtest.AcquireLater(kit.Within(t, time.Minute), ours(other))
		kit.Queued(t, srv, prefix, 5)
		holdtest.MustRelease(t, first)
		holdtest.MustRelease(t, second)
		holdtest.StaysQueued(t, third, "a reader behind etcd's own lock")
		holdtest.StaysQueued(t, fourth, "a reader behind etcd's own lock")
		theirs.Release()
		a, b := <-third, <-fourth
		if a.Err != nil || b.Err != nil {
			t.Fatal(a.Err, b.Err)
		}
		holdtest.MustRelease(t, a.H)
		holdtest.MustRelease(t, b.H)
		if kvs := srv.Keys(prefix); len(kvs) != 0 {
			t.Errorf("left: %v", kit.KeysOf(kvs))
		}
	})
}
