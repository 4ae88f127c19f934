package queue_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// More turns wait than one look reads. The claim of a turn that was not read is not taken for a dead one: it stays, and
// each release admits a waiter at once.
func TestFrontOfMoreTurnsThanItReadsTakesNoneForDead(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const limit, waiting = 25, 320
		ctx := kit.Within(t, time.Minute)
		h := holdtest.MustAcquire(t, holdtest.Start(t, srv).Permits(limit, limit))
		processes := []*holdtest.Process{holdtest.Start(t, srv), holdtest.Start(t, srv)}
		served := make(chan error, waiting)
		for i := range waiting {
			done := holdtest.AcquireLater(ctx, processes[i%2].Permits(limit, 1))
			go func() { // ends with ctx
				r := <-done
				if r.Err == nil {
					time.Sleep(40 * kit.OneWay)
					r.Err = r.H.Release(ctx)
				}
				served <- r.Err
			}()
		}
		kit.Queued(t, srv, permitsX, 1+waiting)
		for _, p := range processes {
			p.Plan(nil)
		}
		if claims := len(srv.Keys("holdfast/sem/x/@claim/")); claims != 1+waiting {
			t.Fatalf("%d claims stand, want %d", claims, 1+waiting)
		}
		began := time.Now()
		holdtest.MustRelease(t, h)
		for range waiting {
			if err := <-served; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > waiting/limit*100*kit.OneWay {
			t.Errorf("%d waiters were served after %v", waiting, took)
		}
		for _, p := range processes {
			if n := p.Counts()["clear"]; n != 0 {
				t.Errorf("%d requests to delete dead claims, and none is dead", n)
			}
		}
		kit.NothingStands(t, srv)
	})
}
