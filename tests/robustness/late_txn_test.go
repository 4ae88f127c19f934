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

// Scenario 7, for real: a member of etcd is stopped with Txns of ours in its
// socket, and carries them out when it goes on, when whatever they were for is
// over. Nothing of them is ever seen.
func TestTxnsFoundInTheSocketOfAStoppedMemberLeaveNothing(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{Processes: true})
	// A session sends four by themselves. The others it collects, and sends them as
	// one when the four were not answered.
	const each, apart, together = 25, 7, 1
	for i, c := range []struct {
		what     string
		entries  int // of each lock, ever
		send     func(t *testing.T, d *detour, locks []string)
		sessions int
		late     int // Txns to be carried out late, at least, or nothing is tested
	}{
		{"acquisitions that were given up", 0, giveUpMeanwhile, apart, 10},
		{"acquisitions sent again and released", 1, releaseMeanwhile, apart, 10},
		{"acquisitions sent again together and released", 1, releaseMeanwhile, together, 4},
		{"hand-overs sent again and released", 2, handOverMeanwhile, apart, 10},
		{"hand-overs sent again together and released", 2, handOverMeanwhile, together, 4},
	} {
		t.Run(c.what, func(t *testing.T) {
			total, late, orphans, extra := 0, 0, 0, 0
			for role, slow := range aFollowerAndTheLeader(t, cluster) {
				prefix := fmt.Sprintf("%d/%s/", i, role)
				locks := make([]string, each)
				for i := range locks {
					locks[i] = fmt.Sprint(prefix, i)
				}
				d := newDetour(t, cluster, slow, c.sessions)
				c.send(t, d, locks)
				d.shutOut(t)
				shut := d.revision(t)
				late += d.goOn(t)
				ever := entriesEver(d.steady.History(t, "holdfast/lock/"+prefix))
				for _, lock := range locks {
					total++
					left := slices.IndexFunc(ever[lock], func(iv interval) bool { return iv.to == 0 }) >= 0
					if left {
						orphans++
					}
					if left || len(ever[lock]) < c.entries {
						t.Errorf("%s: entries ever: %v, want %d, and none that stands", lock, ever[lock], c.entries)
					}
					for _, iv := range ever[lock] {
						if iv.from > shut {
							extra++
						}
					}
				}
			}
			t.Logf("%d rounds: about %d Txns were carried out late, %d entries were left behind", total, late, orphans)
			if extra > 0 {
				t.Errorf("%d late copies put an entry after the session key was put again", extra)
			}
			if late < c.late {
				t.Error("this test has gone blind: hardly a Txn was carried out late")
			}
		})
	}
}

// aFollowerAndTheLeader are the members to stop, one after the other.
func aFollowerAndTheLeader(t *testing.T, cluster *etcdtest.Cluster) func(func(string, *etcdtest.Server) bool) {
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

// giveUpMeanwhile has the callers give up while their acquisitions are under way.
func giveUpMeanwhile(t *testing.T, d *detour, locks []string) {
	ctx, giveUp := context.WithCancel(deadline(t))
	var callers sync.WaitGroup
	d.stop(t, len(locks), func() {
		for i, lock := range locks {
			callers.Go(func() {
				if _, err := locker.NewMutex(d.sess(i), lock).Lock(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: Lock: %v", lock, err)
				}
			})
		}
	})
	giveUp()
	callers.Wait()
}

// releaseMeanwhile has the acquisitions succeed by way of another member, and
// releases the locks.
func releaseMeanwhile(t *testing.T, d *detour, locks []string) {
	var callers sync.WaitGroup
	d.stop(t, len(locks), func() {
		for i, lock := range locks {
			callers.Go(func() { lockAndUnlock(t, d.sess(i), lock, deadline(t)) })
		}
	})
	callers.Wait()
}

// handOverMeanwhile has holders hand over to the next goroutine in line. Every
// other of those gives up, so that its entry is put in vain.
func handOverMeanwhile(t *testing.T, d *detour, locks []string) {
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
	d.stop(t, len(locks), func() {
		for i, lock := range locks {
			holders.Go(func() {
				if err := held[i].Unlock(deadline(t)); err != nil {
					t.Errorf("%s: Unlock: %v", lock, err)
				}
			})
		}
	})
	giveUp()
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

// interval is the life of an entry: from its create revision to the revision
// of its deletion; to is 0 while it stands.
type interval struct {
	key      string
	from, to int64
}

// entriesEver finds the entries of each lock in etcd's record, in order.
func entriesEver(record []*clientv3.Event) map[string][]interval {
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
