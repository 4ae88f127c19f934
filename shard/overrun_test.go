package shard_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

// overrun is a call of OnOverrun.
type overrun struct {
	lost  *holdfast.LostError
	since time.Time
	at    time.Time
}

// telling returns Options.OnOverrun, and what that is told.
func telling() (func(*shard.Options), <-chan overrun) {
	told := make(chan overrun, 10)
	return func(o *shard.Options) {
		o.DrainTimeout = 10 * time.Second
		o.OnOverrun = func(lost *holdfast.LostError, since time.Time) { told <- overrun{lost, since, time.Now()} }
	}, told
}

// The process may end in OnOverrun, so no other owns the shard until it returns.
func TestFunctionOfAShardThatOutlivesDrainTimeoutIsTold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 2)
		release := make(chan struct{})
		var calls atomic.Int32
		const drain = 10 * time.Second
		f.startWith(kit.Start(t, srv), "a", func(context.Context, *shard.Shard) error {
			<-release
			return nil
		}, func(o *shard.Options) {
			o.DrainTimeout = drain
			o.OnOverrun = func(lost *holdfast.LostError, since time.Time) {
				calls.Add(1)
				if ago := time.Since(since); lost.Cause != holdfast.CauseNotDrained || ago != drain {
					t.Errorf("told %v after: %v", ago, lost)
				}
				time.Sleep(time.Minute) // as long as it takes to write stacks
				if f.owned() > 0 {
					t.Error("the next one owns it")
				}
			}
		})
		time.Sleep(settled)
		f.start("b", 0)
		time.Sleep(drain + time.Minute + settled)
		if calls.Load() != 1 || f.owned() != 1 {
			t.Errorf("told %d times, %d shards are owned", calls.Load(), f.owned())
		}
		close(release)
	})
}

func TestFunctionOfAShardThatOutlivesItsLossIsTold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		change, told := telling()
		var first atomic.Bool
		a := f.startWith(kit.Start(t, srv), "a", func(ctx context.Context, _ *shard.Shard) error {
			<-ctx.Done()
			if first.CompareAndSwap(false, true) {
				time.Sleep(time.Minute) // longer than DrainTimeout
			}
			return nil
		}, change)
		time.Sleep(settled)
		lost := time.Now()
		srv.Revoke(a.Sess.Lease())
		o := <-told
		if o.lost.Cause != holdfast.CauseRevoked || o.at.Sub(lost) > kit.LockDelay || o.since.Before(lost) {
			t.Errorf("told %v after the revocation, since %v: %v", o.at.Sub(lost), o.since.Sub(lost), o.lost)
		}
		time.Sleep(2 * time.Minute)
		if len(told) > 0 {
			t.Errorf("told again: %v", (<-told).lost)
		}
	})
}

func TestFunctionOfAShardThatReturnsInTimeIsNotTold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 4)
		change, told := telling()
		a := f.start("a", 5*time.Second, change)
		time.Sleep(settled)
		b := f.start("b", 0, change) // some shards move
		time.Sleep(3 * settled)
		f.even("both", "a", "b")
		srv.Revoke(b.Sess.Lease())
		time.Sleep(3 * settled)
		f.even("after the loss", "a", "b")
		a.stop()
		if err := b.Sess.Close(kit.Within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		<-b.done
		if !errors.Is(b.err, holdfast.ErrClosed) || len(told) > 0 {
			t.Errorf("told %d times; Run: %v", len(told), b.err)
		}
	})
}
