package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A Try asks first and puts afterwards. What has queued in between must not be passed, nor waited for.
func TestTryAcquireThatIsOvertakenIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		reads, other bool // readers
		want         error
	}{
		"a reader by a writer": {reads: true, want: queue.ErrOccupied},
		"a writer by a reader": {other: true, want: queue.ErrOccupied},
		"a writer by a writer": {want: queue.ErrOccupied},
		"a reader by a reader": {reads: true, other: true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				p.PlanOne("enqueue", etcdfake.Fate{Request: 100 * kit.OneWay})
				q := p.Queue("x")
				if c.reads {
					q = p.Readers("x")
				}
				done := make(chan holdtest.Result, 1)
				go func() {
					h, err := holdtest.TryAcquire(kit.Within(t, time.Minute), q)
					done <- holdtest.Result{H: h, Err: err, At: time.Now()}
				}()
				time.Sleep(50 * kit.OneWay)
				join := kit.Join
				if c.other {
					join = kit.JoinReader
				}
				other := join(t, srv, holdtest.EntriesX)
				r := <-done
				if !errors.Is(r.Err, c.want) {
					t.Fatalf("TryAcquire: %v, want %v", r.Err, c.want)
				}
				if r.H != nil {
					holdtest.MustRelease(t, r.H)
				}
				other.Release()
				kit.NothingStands(t, srv)
			})
		})
	}
}

// The other reader holds all the time, and the writer gets in once both have gone.
func TestReaderWhoseRequestIsNotAnsweredLeavesNothing(t *testing.T) {
	lostRequest := etcdfake.Fate{LoseRequest: true}
	for _, kind := range []string{"enqueue", "remove", "read", "watch"} {
		for name, fate := range map[string]etcdfake.Fate{
			"reply lost": holdtest.LostReply, "request lost": lostRequest, "silent": holdtest.Silence,
			"no reply": {LoseReply: true, Silent: true}, "late": {Request: 3 * time.Second},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := holdtest.Start(t, srv)
					writer := kit.Join(t, srv, holdtest.EntriesX)
					p.PlanOne(kind, fate)
					reader := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Readers("x"))
					time.Sleep(5 * time.Second)
					other := kit.JoinReader(t, srv, holdtest.EntriesX)
					writer.Release()
					r := <-reader
					if r.Err != nil {
						t.Fatal(r.Err)
					}
					behind := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Queue("x"))
					time.Sleep(kit.LockDelay)
					holdtest.MustRelease(t, r.H)
					holdtest.StaysQueued(t, behind, "the writer")
					other.Release()
					holdtest.MustRelease(t, holdtest.Granted(t, srv, behind).H)
					time.Sleep(time.Minute)
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

func TestReaderThatGivesUpAtAnyMomentLeavesNothingAndDelaysNone(t *testing.T) {
	holdtest.AtEveryMoment(t, 0, 12*kit.OneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
		p := holdtest.Start(t, srv)
		writer := kit.Join(t, srv, holdtest.EntriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		reader := holdtest.AcquireLater(ctx, p.Readers("x"))
		time.AfterFunc(6*kit.OneWay, writer.Release)
		time.Sleep(offset)
		giveUp()
		if r := <-reader; r.Err == nil {
			holdtest.MustRelease(t, r.H)
		} else if !errors.Is(r.Err, context.Canceled) {
			t.Errorf("Acquire: %v", r.Err)
		}
		time.Sleep(12 * kit.OneWay)
		began := time.Now()
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Queue("x"))
		if d := time.Since(began); d > kit.LockDelay/2 {
			t.Errorf("a writer that comes afterwards waits for %v", d)
		}
		holdtest.MustRelease(t, h)
		time.Sleep(time.Minute)
		kit.NothingStands(t, srv)
	})
}

func TestSuspendedReaderKeepsWritersOutAndItsFellowsHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		suspended, fellow := holdtest.MustAcquire(t, p.Readers("x")), holdtest.MustAcquire(t, other.Readers("x"))
		writer := holdtest.AcquireLater(kit.Within(t, time.Hour), other.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 3)
		p.Link.BlackHole()
		for suspended.Check() == nil {
			time.Sleep(kit.OneWay)
		}
		if err := suspended.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			t.Fatalf("Check of the suspended reader: %v", err)
		}
		if err := fellow.Check(); err != nil {
			t.Errorf("Check of the other reader: %v", err)
		}
		holdtest.MustRelease(t, fellow)
		holdtest.StaysQueued(t, writer, "the writer")
		p.Heal()
		time.Sleep(5 * time.Second)
		if err := suspended.Check(); err != nil {
			t.Errorf("Check after the connection is back: %v", err)
		}
		holdtest.MustRelease(t, suspended)
		holdtest.MustRelease(t, holdtest.Granted(t, srv, writer).H)
	})
}

func TestCloseWithReadersThatHoldAndWait(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		writer := holdtest.MustAcquire(t, other.Queue("y"))
		var waiting []<-chan holdtest.Result
		var held []*hold.Hold
		for range 3 {
			held = append(held, holdtest.MustAcquire(t, p.Readers("x")))
			waiting = append(waiting, holdtest.AcquireLater(kit.Within(t, time.Minute), p.Readers("y")))
		}
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), other.Queue("x"))
		behind := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Queue("y"))
		kit.Queued(t, srv, holdtest.EntriesX, 4)
		kit.Queued(t, srv, kit.Entries("y"), 5)
		holdtest.MustClose(t, p)
		for _, h := range held {
			if err := h.Check(); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("a reader that held: %v", err)
			}
		}
		for _, done := range waiting {
			if r := <-done; !errors.Is(r.Err, holdfast.ErrClosed) {
				t.Errorf("a reader that waited: %v", r.Err)
			}
		}
		r := holdtest.Granted(t, srv, next)
		holdtest.Delayed(t, r, srv, held[0].Key(), false)
		holdtest.MustRelease(t, r.H)
		holdtest.MustRelease(t, writer)
		r = holdtest.Granted(t, srv, behind)
		holdtest.Delayed(t, r, srv, writer.Key(), false)
		holdtest.MustRelease(t, r.H)
		kit.NothingStands(t, srv)
	})
}

func TestAllReadersOfALostSessionAreToldBeforeAWriterHolds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		var readers []*hold.Hold
		for range 50 {
			readers = append(readers, holdtest.MustAcquire(t, p.Readers("x")))
		}
		stays := holdtest.MustAcquire(t, other.Readers("x"))
		told := make(chan time.Time, len(readers))
		for _, h := range readers {
			ctx, cancel := h.Context(t.Context(), false)
			defer cancel()
			context.AfterFunc(ctx, func() { told <- time.Now() })
		}
		writer := holdtest.AcquireLater(kit.Within(t, time.Minute), other.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 52)
		time.Sleep(time.Second)
		srv.Revoke(p.Sess.Lease())
		holdtest.MustRelease(t, stays)
		r := holdtest.Granted(t, srv, writer)
		holdtest.Delayed(t, r, srv, stays.Key(), true)
		for _, h := range readers {
			at := <-told
			if err := h.Check(); !errors.Is(err, holdfast.ErrLost) || !at.Before(r.At) {
				t.Errorf("a reader of the lost session: %v; one was told at %v, and the writer holds since %v", err, at, r.At)
			}
		}
		holdtest.MustRelease(t, r.H)
	})
}

// A writer behind a reader that waits for the lock delay gives up. The reader behind both does not wait for the
// other reader.
func TestReaderBehindAWriterThatLeavesDelaysIfAWriterAheadWasRevoked(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(holder *kit.Peer)
		delay bool
	}{
		"revoked":                        {(*kit.Peer).Revoke, true},
		"released":                       {(*kit.Peer).Release, false},
		"released, and its session ends": {func(p *kit.Peer) { p.Release(); p.Revoke() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				holder, between := kit.Join(t, srv, holdtest.EntriesX), kit.JoinReader(t, srv, holdtest.EntriesX)
				writer, p := kit.Join(t, srv, holdtest.EntriesX), holdtest.Start(t, srv)
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Readers("x"))
				kit.Queued(t, srv, holdtest.EntriesX, 4)
				c.leave(holder)
				time.Sleep(kit.LockDelay / 10)
				writer.Release() // which it may, as between still stands
				holdtest.Delayed(t, <-done, srv, writer.Key, c.delay)
				between.Release()
			})
		})
	}
}
