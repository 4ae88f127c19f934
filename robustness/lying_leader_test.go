//go:build linux

package robustness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
)

// Scenario 30: etcd's leader is stopped for longer than an election, goes on,
// and acknowledges renewals that the cluster has never seen; then it is silent
// for good. Those who held by it alone are told before others lead.
func TestLeaderBehindAPausedMemberIsToldInTime(t *testing.T) {
	const holders = 24
	const ttl = 3 * time.Second
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var margins durations
	for round := range rounds(2, 1) {
		old, others := leaderAndOthers(t, cluster)
		next := open(t, clientTo(t, others...), session.Options{TTL: 30 * time.Second, Retry: quick})

		var leading, done sync.WaitGroup
		for i := range holders {
			name := fmt.Sprintf("round-%d-%d", round, i)
			leading.Add(1)
			done.Go(func() {
				sess := open(t, old.Client(t), session.Options{TTL: ttl, Retry: quick, CloseTimeout: 100 * time.Millisecond})
				term, err := election.New(sess, name).Campaign(deadline(t), "old")
				leading.Done()
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := term.Context(deadline(t))
				defer cancel()
				told := make(chan time.Time, 1)
				context.AfterFunc(ctx, func() { told <- time.Now() })
				after, err := election.New(next, name).Campaign(deadline(t), "next")
				began := time.Now()
				if err != nil {
					t.Error(err)
					return
				}
				margins.add(began.Sub(<-told))
				if err := term.Check(); !errors.Is(err, session.ErrLost) || after.Token() <= term.Token() {
					t.Errorf("%s: token %v after %v; Check: %v", name, after.Token(), term.Token(), err)
				}
			})
		}
		leading.Wait()
		must(old.Pause())
		// Long enough for an election, too short for most holders to be lost:
		// they are trusted for nine tenths of the TTL since their last renewal.
		<-time.After(2 * ttl / 3)
		_, err := cluster.Leader(deadline(t))
		must(err)
		must(old.Resume())
		// Long enough to acknowledge what has waited in its sockets and to be
		// told that it leads no more, too short for another renewal.
		<-time.After(150 * time.Millisecond)
		must(old.Pause())
		done.Wait()
		must(old.Resume())
	}
	m := margins.sorted()
	if len(m) == 0 {
		t.Fatal("nobody was told")
	}
	t.Logf("%d terms: told before the next term began by %v at least, %v at most", len(m), m[0], m[len(m)-1])
	if m[0] <= 0 {
		t.Errorf("a leader was told %v after the next term had begun", -m[0])
	}
}
