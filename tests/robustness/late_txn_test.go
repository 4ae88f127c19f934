//go:build linux

package robustness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// Scenario 7 with real members: a member of etcd is paused while Txns are in its socket. It executes them when it
// resumes, long after the acquisitions and releases that sent them. They leave no entry.
func TestLateTxnsOfAPausedMemberLeaveNoEntries(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true, DefaultTicks: true})
	// A session sends up to four Txns alone and batches the others. With seven sessions
	// for 25 locks, all go alone.
	const each, alone, batched = 25, 7, 1
	for i, c := range []struct {
		what     string
		entries  int // least number of entries of each lock
		send     func(t *testing.T, d *reroutedClient, locks []string)
		sessions int
		late     int // least number of late Txns, or the test proves nothing
	}{
		{"canceled acquisitions", 0, cancelWhilePaused, alone, 4},
		{"repeated and released acquisitions", 1, releaseWhilePaused, alone, 4},
		{"repeated and released acquisitions in batches", 1, releaseWhilePaused, batched, 2},
		{"repeated hand-offs", 2, handOffWhilePaused, alone, 4},
		{"repeated hand-offs in batches", 2, handOffWhilePaused, batched, 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			total, late, orphans, extra := 0, 0, 0, 0
			// A member may read that a Txn is canceled before it executes it, on a busy
			// machine nearly always. Then the test makes another round.
			for round := 0; round == 0 || late < c.late && round < 5; round++ {
				for role, paused := range followerThenLeader(t, cluster) {
					prefix := fmt.Sprintf("%d/%d/%s/", i, round, role)
					locks := make([]string, each)
					for i := range locks {
						locks[i] = fmt.Sprint(prefix, i)
					}
					d := newReroutedClient(t, cluster, paused, c.sessions)
					c.send(t, d, locks)
					d.awaitNewGates(t)
					fenced := d.revision(t)
					late += d.resume(t)
					entries := entryHistory(d.steady.History(t, "holdfast/lock/"+prefix))
					for _, lock := range locks {
						total++
						left := slices.IndexFunc(entries[lock], func(iv interval) bool { return iv.to == 0 }) >= 0
						if left {
							orphans++
						}
						if left || len(entries[lock]) < c.entries {
							t.Errorf("%s: entries %v, want %d, all deleted", lock, entries[lock], c.entries)
						}
						for _, iv := range entries[lock] {
							if iv.from > fenced {
								extra++
							}
						}
					}
				}
			}
			t.Logf("%d locks: etcd executed about %d late Txns, which left %d entries", total, late, orphans)
			if extra > 0 {
				t.Errorf("%d late copies put an entry after the session key was put again", extra)
			}
			if late < c.late {
				t.Error("the test proves nothing: too few Txns were late")
			}
		})
	}
}

// followerThenLeader yields the roles and members to pause.
func followerThenLeader(t *testing.T, cluster *etcdtest.Cluster) func(func(string, *etcdtest.Server) bool) {
	return func(yield func(string, *etcdtest.Server) bool) {
		for _, role := range []string{"follower", "leader"} {
			leader, err := cluster.Leader(deadline(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range cluster.Members() {
				if (m == leader) == (role == "leader") {
					if !yield(role, m) {
						return
					}
					break
				}
			}
		}
	}
}

// cancelWhilePaused cancels acquisitions whose Txns are in the socket of the member.
func cancelWhilePaused(t *testing.T, d *reroutedClient, locks []string) {
	ctx, giveUp := context.WithCancel(deadline(t))
	var callers sync.WaitGroup
	d.pause(t, len(locks), func() {
		for i, lock := range locks {
			callers.Go(func() {
				if _, err := locker.NewMutex(d.sess(i), lock).Lock(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: Lock: %v", lock, err)
				}
			})
		}
	}, giveUp)
	callers.Wait()
}

// releaseWhilePaused lets acquisitions succeed through another member and releases the
// locks.
func releaseWhilePaused(t *testing.T, d *reroutedClient, locks []string) {
	var callers sync.WaitGroup
	d.pause(t, len(locks), func() {
		for i, lock := range locks {
			callers.Go(func() { lockAndUnlock(t, d.sess(i), lock, deadline(t)) })
		}
	}, func() {})
	callers.Wait()
}

// handOffWhilePaused releases locks for which another goroutine of the session waits.
// Every other of those gives up, so that the entry put for it has no use.
func handOffWhilePaused(t *testing.T, d *reroutedClient, locks []string) {
	ctx, giveUp := context.WithCancel(deadline(t))
	var holders, next sync.WaitGroup
	held := make([]*locker.Lock, len(locks))
	for i, lock := range locks {
		var err error
		if held[i], err = locker.NewMutex(d.sess(i), lock).Lock(deadline(t)); err != nil {
			t.Fatal(err)
		}
		joined := &joinSignal{Context: deadline(t), joined: make(chan struct{})}
		if i%2 == 0 {
			joined.Context = ctx
		}
		next.Go(func() { lockAndUnlock(t, d.sess(i), lock, joined) })
		<-joined.joined
	}
	d.pause(t, len(locks), func() {
		for i, lock := range locks {
			holders.Go(func() {
				if err := held[i].Unlock(deadline(t)); err != nil {
					t.Errorf("%s: Unlock: %v", lock, err)
				}
			})
		}
	}, giveUp)
	holders.Wait()
	next.Wait()
}

func lockAndUnlock(t *testing.T, sess *session.Session, lock string, ctx context.Context) {
	lk, err := locker.NewMutex(sess, lock).Lock(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Lock: %v", lock, err)
		}
		return
	}
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Errorf("%s: Unlock: %v", lock, err)
	}
}

// interval is the lifetime of an entry in revisions: it was created at from and deleted
// at to, which is 0 while it exists.
type interval struct {
	key      string
	from, to int64
}

// entryHistory returns all entries of each lock in order of creation, from the history
// of etcd's store.
func entryHistory(record []*clientv3.Event) map[string][]interval {
	ever := make(map[string][]interval)
	for _, ev := range record {
		key := string(ev.Kv.Key)
		lock, _, entry := strings.Cut(strings.TrimPrefix(key, "holdfast/lock/"), "/@/")
		if !entry {
			continue
		}
		if ev.IsCreate() {
			ever[lock] = append(ever[lock], interval{key: key, from: ev.Kv.ModRevision})
		}
		for i, iv := range ever[lock] {
			if ev.Type == clientv3.EventTypeDelete && iv.key == key && iv.to == 0 {
				ever[lock][i].to = ev.Kv.ModRevision
			}
		}
	}
	return ever
}
