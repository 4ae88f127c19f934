package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// The writer gives up before it knows what is ahead, so that only the hand-off learns it.
func TestNextInAWritersLineDelaysIfTheWriterNeverKnewItsPlace(t *testing.T) {
	for name, revoke := range map[string]bool{"revoked": true, "released": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				gone, stays := kit.JoinReader(t, srv, entriesX), kit.JoinReader(t, srv, entriesX)
				p.Plan(func(kind string, n int) etcdfake.Fate {
					switch {
					case kind == "enqueue" && n == 1:
						return lostReply
					case kind == "read" && n > 1: // the first finds that the entry stands
						return silence
					}
					return etcdfake.Fate{}
				})
				ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
				writer := acquireLater(ctx, p.queue("x"))
				kit.Queued(t, srv, entriesX, 3)
				next := acquireLater(kit.Within(t, time.Minute), p.queue("x"))
				time.Sleep(time.Second)
				if n := p.Counts(); n["read"] < 2 {
					t.Fatalf("sent %v: the writer does not ask for its place", n)
				}
				if revoke {
					gone.Revoke()
				} else {
					gone.Release()
				}
				giveUp()
				<-writer
				p.Plan(nil)
				time.Sleep(3 * time.Second)
				if n := p.Counts(); n["hand-off"] != 1 {
					t.Fatalf("sent %v, want a hand-off", n)
				}
				stays.Release()
				delayed(t, <-next, srv, stays.Key, revoke)
			})
		})
	}
}

// A Try asks first and puts afterwards. What has queued in between must not be passed, nor waited for.
func TestTryAcquireThatIsOvertakenIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		reads, other bool // readers
		want         error
	}{
		"a reader by a writer": {reads: true, want: ErrOccupied},
		"a writer by a reader": {other: true, want: ErrOccupied},
		"a writer by a writer": {want: ErrOccupied},
		"a reader by a reader": {reads: true, other: true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				p.PlanOne("enqueue", etcdfake.Fate{Request: 100 * kit.OneWay})
				q := p.queue("x")
				if c.reads {
					q = p.readers("x")
				}
				done := make(chan result, 1)
				go func() {
					h, err := q.TryAcquire(kit.Within(t, time.Minute), Request{})
					done <- result{h, err, time.Now()}
				}()
				time.Sleep(50 * kit.OneWay)
				join := kit.Join
				if c.other {
					join = kit.JoinReader
				}
				other := join(t, srv, entriesX)
				r := <-done
				if !errors.Is(r.err, c.want) {
					t.Fatalf("TryAcquire: %v, want %v", r.err, c.want)
				}
				if r.h != nil {
					mustRelease(t, r.h)
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
			"reply lost": lostReply, "request lost": lostRequest, "silent": silence,
			"no reply": {LoseReply: true, Silent: true}, "late": {Request: 3 * time.Second},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := start(t, srv)
					writer := kit.Join(t, srv, entriesX)
					p.PlanOne(kind, fate)
					reader := acquireLater(kit.Within(t, time.Minute), p.readers("x"))
					time.Sleep(5 * time.Second)
					other := kit.JoinReader(t, srv, entriesX)
					writer.Release()
					r := <-reader
					if r.err != nil {
						t.Fatal(r.err)
					}
					behind := acquireLater(kit.Within(t, time.Minute), start(t, srv).queue("x"))
					time.Sleep(kit.LockDelay)
					mustRelease(t, r.h)
					staysQueued(t, behind, "the writer")
					other.Release()
					mustRelease(t, granted(t, srv, behind).h)
					time.Sleep(time.Minute)
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

func TestReaderThatGivesUpAtAnyMomentLeavesNothingAndDelaysNone(t *testing.T) {
	atEveryMoment(t, 0, 12*kit.OneWay, func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
		p := start(t, srv)
		writer := kit.Join(t, srv, entriesX)
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Minute))
		reader := acquireLater(ctx, p.readers("x"))
		time.AfterFunc(6*kit.OneWay, writer.Release)
		time.Sleep(offset)
		giveUp()
		if r := <-reader; r.err == nil {
			mustRelease(t, r.h)
		} else if !errors.Is(r.err, context.Canceled) {
			t.Errorf("Acquire: %v", r.err)
		}
		time.Sleep(12 * kit.OneWay)
		began := time.Now()
		h := mustAcquire(t, start(t, srv).queue("x"))
		if d := time.Since(began); d > kit.LockDelay/2 {
			t.Errorf("a writer that comes afterwards waits for %v", d)
		}
		mustRelease(t, h)
		time.Sleep(time.Minute)
		kit.NothingStands(t, srv)
	})
}

func TestSuspendedReaderKeepsWritersOutAndItsFellowsHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		suspended, fellow := mustAcquire(t, p.readers("x")), mustAcquire(t, other.readers("x"))
		writer := acquireLater(kit.Within(t, time.Hour), other.queue("x"))
		kit.Queued(t, srv, entriesX, 3)
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
		mustRelease(t, fellow)
		staysQueued(t, writer, "the writer")
		p.Heal()
		time.Sleep(5 * time.Second)
		if err := suspended.Check(); err != nil {
			t.Errorf("Check after the connection is back: %v", err)
		}
		mustRelease(t, suspended)
		mustRelease(t, granted(t, srv, writer).h)
	})
}

func TestCloseWithReadersThatHoldAndWait(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		writer := mustAcquire(t, other.queue("y"))
		var waiting []<-chan result
		var held []*Hold
		for range 3 {
			held = append(held, mustAcquire(t, p.readers("x")))
			waiting = append(waiting, acquireLater(kit.Within(t, time.Minute), p.readers("y")))
		}
		next := acquireLater(kit.Within(t, time.Minute), other.queue("x"))
		behind := acquireLater(kit.Within(t, time.Minute), start(t, srv).queue("y"))
		kit.Queued(t, srv, entriesX, 4)
		kit.Queued(t, srv, kit.Entries("y"), 5)
		mustClose(t, p)
		for _, h := range held {
			if err := h.Check(); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("a reader that held: %v", err)
			}
		}
		for _, done := range waiting {
			if r := <-done; !errors.Is(r.err, holdfast.ErrClosed) {
				t.Errorf("a reader that waited: %v", r.err)
			}
		}
		r := granted(t, srv, next)
		delayed(t, r, srv, held[0].Key(), false)
		mustRelease(t, r.h)
		mustRelease(t, writer)
		// Of readers that went before, a writer knows only whether their sessions lived on, so it delays once.
		r = granted(t, srv, behind)
		delayed(t, r, srv, writer.Key(), true)
		mustRelease(t, r.h)
		kit.NothingStands(t, srv)
	})
}

func TestAllReadersOfALostSessionAreToldBeforeAWriterHolds(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		var readers []*Hold
		for range 50 {
			readers = append(readers, mustAcquire(t, p.readers("x")))
		}
		stays := mustAcquire(t, other.readers("x"))
		writer := acquireLater(kit.Within(t, time.Minute), other.queue("x"))
		kit.Queued(t, srv, entriesX, 52)
		time.Sleep(time.Second)
		srv.Revoke(p.Sess.Lease())
		mustRelease(t, stays)
		r := granted(t, srv, writer)
		delayed(t, r, srv, stays.Key(), true)
		for _, h := range readers {
			if err := h.Check(); !errors.Is(err, holdfast.ErrLost) || !h.until.Before(r.at) {
				t.Errorf("a reader of the lost session: %v, at %v; the writer holds since %v", err, h.until, r.at)
			}
		}
		mustRelease(t, r.h)
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
		"released, and its session ends": {func(p *kit.Peer) { p.Release(); p.Revoke() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				holder, between := kit.Join(t, srv, entriesX), kit.JoinReader(t, srv, entriesX)
				writer, p := kit.Join(t, srv, entriesX), start(t, srv)
				done := acquireLater(kit.Within(t, time.Minute), p.readers("x"))
				kit.Queued(t, srv, entriesX, 4)
				c.leave(holder)
				time.Sleep(kit.LockDelay / 10)
				writer.Release() // which it may, as between still stands
				delayed(t, <-done, srv, writer.Key, c.delay)
				between.Release()
			})
		})
	}
}
