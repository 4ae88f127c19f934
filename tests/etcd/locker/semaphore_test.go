package locker_test

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

const permitsX = "holdfast/sem/x/@/"

// Each grant is judged by what stood in etcd's history at the revision at which the permit is known to be held. What
// counts is its own entry and the older ones.
func TestPermitsNeverExceedTheLimitByTheRecordOfEtcd(t *testing.T) {
	t.Parallel()
	const limit = 3
	times := rounds.Of(8, 4)
	srv := etcdtest.Start(t)
	var all sync.WaitGroup
	var mu sync.Mutex // protects grants
	type grant struct {
		key string
		rev int64 // at which it is known to hold: of its put or mark, or of a read if their reply was late
	}
	var grants []grant
	for i := range 4 {
		sem := locker.NewSemaphore(open(t, srv.Client(t), session.Options{}), "x", limit)
		for j := range 4 {
			all.Go(func() {
				for k := range times {
					acquire := sem.Acquire
					if k%4 == 3 {
						acquire = sem.TryAcquire
					}
					p, err := acquire(deadline(t), 1+(i+j+k)%limit)
					if err != nil {
						continue // of TryAcquire
					}
					mu.Lock()
					grants = append(grants, grant{p.Key(), p.AcquiredRevision()})
					mu.Unlock()
					if err := p.Release(deadline(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.rev, b.rev) })
	const turnsX = "holdfast/sem/x/@turn/"
	history := append(srv.History(t, permitsX), srv.History(t, turnsX)...)
	slices.SortFunc(history, func(a, b *mvccpb.Event) int { return cmp.Compare(a.Kv.ModRevision, b.Kv.ModRevision) })
	standing := make(map[string]int64) // create revisions of permits: a turn is one once it was put a second time
	for _, g := range grants {
		for len(history) > 0 && history[0].Kv.ModRevision <= g.rev {
			kv := history[0].Kv
			if strings.HasPrefix(string(kv.Key), permitsX) || kv.Version > 1 {
				standing[string(kv.Key)] = kv.CreateRevision
			}
			if history[0].Type == mvccpb.Event_DELETE {
				delete(standing, string(kv.Key))
			}
			history = history[1:]
		}
		sum := 0
		for other, created := range standing {
			if created <= standing[g.key] {
				sum += weightOf(t, other)
			}
		}
		if sum == 0 || sum > limit {
			t.Errorf("%s held at revision %d with %d of %d permits, and stood: %v", g.key, g.rev, sum, limit, sum > 0)
		}
	}
	if len(grants) < 4*4*times*3/4 {
		t.Errorf("%d grants", len(grants))
	}
	for _, prefix := range []string{permitsX, turnsX, "holdfast/sem/x/@claim/"} {
		if left := srv.Keys(t, prefix); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

func weightOf(t *testing.T, key string) int {
	t.Helper()
	weight, _, _ := strings.Cut(key[strings.LastIndexByte(key, '/')+1:], "-")
	n, err := strconv.Atoi(weight)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWaitersOfASemaphoreAreServedInOrderOnARealEtcd(t *testing.T) {
	t.Parallel()
	const limit = 4
	waiters := rounds.Of(100, 30)
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 600 * time.Second})
	sem := locker.NewSemaphore(sess, "x", limit)
	all, err := sem.Acquire(deadline(t), limit)
	if err != nil {
		t.Fatal(err)
	}
	patient, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // many in turn, on a slow machine
	defer cancel()
	settled(t, link)
	before := link.Count()
	acquired := make(map[string]int64) // revisions, by key; protected by mu
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			err := sem.Do(patient, 1, func(_ context.Context, p *locker.Permit) error {
				mu.Lock()
				defer mu.Unlock()
				acquired[p.Key()] = p.AcquiredRevision()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		// The read that follows the watch shows that it waits.
		if err := link.Wait(deadline(t), "Txn", before["Txn"]+2*(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.Release(deadline(t)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	last := int64(0)
	for _, ev := range srv.History(t, permitsX) { // in the order in which they queued
		at, waited := acquired[string(ev.Kv.Key)]
		if !waited || !ev.IsCreate() {
			continue
		}
		if at <= last {
			t.Errorf("%s was admitted at revision %d, the one that queued before it at %d", ev.Kv.Key, at, last)
		}
		last = at
	}
	if len(acquired) != waiters {
		t.Errorf("%d were served", len(acquired))
	}
}
