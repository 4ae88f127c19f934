//go:build linux

package robustness

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// Members are restarted one after the other, as for an upgrade, while a crowd waits for a lock: no session is lost, and
// all are served in order. The whole test, with 1,000 callers and 10 s between two restarts, takes a minute:
//
//	go test ./tests/robustness -run TestCrowdIsServedWhileMembersAreRestarted -campaign -v
func TestCrowdIsServedWhileMembersAreRestarted(t *testing.T) {
	callers, apart := rounds.Long(1000, 300, 60), seconds(rounds.Long(10, 5, 2))
	quarter := callers / 4
	held := apart / time.Duration(quarter) // by each: a member is restarted whenever a quarter has been served
	p := startFaultyCluster(t, 3, "", etcdtest.Options{Processes: true, DefaultTicks: true})
	var lost atomic.Int64
	var sessions []*session.Session
	for range 4 {
		sessions = append(sessions, open(t, p.client(t), session.Options{TTL: 15 * time.Second, OnStateChange: func(
			ev session.Event,
		) {
			if ev.State == holdfast.Lost {
				lost.Add(1)
				t.Log(ev.Err)
			}
		}}))
	}
	var mu sync.Mutex // protects tokens
	var tokens []holdfast.Token
	served := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(tokens)
	}
	began := time.Now()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			lk, err := locker.NewMutex(sessions[i%len(sessions)], "x").Lock(throughout(t))
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
				return
			}
			mu.Lock()
			tokens = append(tokens, lk.Token())
			mu.Unlock()
			<-time.After(held) // its work
			if err := lk.Unlock(throughout(t)); err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	for i, m := range p.cluster.Members() {
		await(t, "another quarter is served", func() bool { return served() >= (i+1)*quarter })
		t.Logf("after %v, %d are served", time.Since(began).Round(time.Millisecond), served())
		m.Stop()
		if err := m.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	if ordered := slices.IsSorted(tokens); lost.Load() > 0 || len(tokens) != callers || !ordered {
		t.Errorf("%d sessions lost; %d of %d callers served, in order: %v", lost.Load(), len(tokens), callers, ordered)
	}
	t.Logf("%d callers are served after %v", callers, time.Since(began).Round(time.Millisecond))
}
