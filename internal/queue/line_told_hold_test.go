package queue_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// told is a log that counts the lines of goroutines that wait for their own session.
type told struct{ lines atomic.Int32 }

func (l *told) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("perhaps this goroutine")) {
		l.lines.Add(1)
	}
	return len(line), nil
}

// A goroutine that locks a name twice waits for itself. The log says it once for each hold, also of many that wait.
func TestGoroutineThatWaitsForItsOwnSessionIsTold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log told
		p := holdtest.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		ctx, giveUp := context.WithCancel(kit.Within(t, time.Hour))
		expect := func(when string, lines int32) {
			t.Helper()
			synctest.Wait()
			if n := log.lines.Load(); n != lines {
				t.Errorf("%s: %d lines, want %d", when, n, lines)
			}
		}
		ahead := kit.Join(t, srv, holdtest.EntriesX)
		first := holdtest.AcquireLater(ctx, p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		waits := holdtest.AcquireLater(ctx, p.Queue("x"))
		time.Sleep(6 * time.Second)
		expect("nobody of the session holds", 0)
		giveUp()
		<-first
		<-waits
		ahead.Release()

		lock := holdtest.MustAcquire(t, p.Queue("x"))
		var line []<-chan holdtest.Result
		for range 3 {
			line = append(line, holdtest.AcquireLater(kit.Within(t, time.Hour), p.Queue("x")))
			time.Sleep(time.Second)
		}
		time.Sleep(1900 * time.Millisecond)
		expect("4.9 s later", 0)
		time.Sleep(time.Minute)
		expect("a minute later", 1)
		holdtest.MustRelease(t, lock)
		for _, next := range line {
			holdtest.MustRelease(t, holdtest.Granted(t, srv, next).H)
		}
	})
}
