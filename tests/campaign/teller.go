//go:build linux

package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A teller reports to the judge.
type teller struct {
	parent  *child.Parent[event]
	process string
}

// say reports an event. A judge that does not read has the process wait, perhaps under a mutex of its session: then it
// does not run, although its heartbeat goes on.
func (t teller) say(ev event) {
	from := sinceBoot()
	t.parent.Say(reports, ev)
	if to := sinceBoot(); to-from > stall {
		t.didNotRun(from, to)
	}
}

// didNotRun reports when the process did not run.
func (t teller) didNotRun(from, to time.Duration) {
	t.parent.Say(reports, event{What: stalled, Stall: oracle.Fault{Process: t.process, From: from, To: to}})
}

// reportStalls reports when the process did not run, until the function that it returns is called.
func (w *worker) reportStalls(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var beats sync.WaitGroup
	beats.Go(func() {
		beat(ctx, stall, func(f oracle.Fault) { w.didNotRun(f.From, f.To) })
	})
	return func() {
		cancel()
		beats.Wait()
	}
}

// processOf returns the process that has made a call. A process that was killed has a successor of the same name.
func processOf(who string) string {
	name, _, _ := strings.Cut(who, ".")
	return name
}
