package etcdfake

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/bubble"
)

// Test runs f in a bubble of virtual time, as [testing/synctest.Test] does, with a new Server that it closes after f
// and after what f has registered with t.Cleanup. The test fails if a goroutine of the bubble outlives it, so close
// sessions.
//
// Under the race detector the whole program has one processor until Test returns. With more, the race detector of Go
// 1.25 and 1.26 can crash in a bubble whose goroutines use channel timers, as clients of etcd do. It still finds every
// race: it checks how accesses are ordered, not whether they happen at the same time. Prefer Test to synctest.Test for
// this reason even where no Server is needed.
func Test(t *testing.T, f func(t *testing.T, srv *Server)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		srv := New(nil)
		t.Cleanup(srv.Close)
		f(t, srv)
	})
}
