package queue_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// The read that finds the only reader ahead gone has read its session key, too.
func TestWriterBehindOneReaderJudgesItWithTheReadThatMissesIt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		ahead := kit.JoinReader(t, srv, holdtest.EntriesX)
		done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
		kit.Queued(t, srv, holdtest.EntriesX, 2)
		time.Sleep(time.Second) // the watch stands
		p.Unheard(srv, ahead.Release)
		holdtest.Delayed(t, holdtest.Granted(t, srv, done), srv, ahead.Key, false)
		if n := p.Counts(); n["read"] != 1 {
			t.Errorf("sent %v, want one read after the watch", n)
		}
	})
}
