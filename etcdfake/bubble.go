package etcdfake

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

// Test runs f in a bubble of virtual time, as testing/synctest.Test does, with a new Server that it closes after f and
// f's t.Cleanup. The test fails if a goroutine of the bubble outlives it: close sessions.
//
// Under the race detector the program has one processor until Test returns, which hides no race. With more, Go 1.25 and
// 1.26 can crash in a bubble with clients of etcd: prefer Test to synctest.Test even where no Server is needed.
func Test(t *testing.T, f func(t *testing.T, srv *Server)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		srv := New(nil)
		t.Cleanup(srv.Close)
		f(t, srv)
	})
}
