package locker_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

const permitsX = "holdfast/sem/x/@/"

// Admissions are found in etcd's history: the put of the entry, if there was room, or that of its mark.
func TestPermitsNeverExceedTheLimitByTheRecordOfEtcd(t *testing.T) {
	t.Parallel()
	const limit = 3
	srv := etcdtest.Start(t)
	var all sync.WaitGroup
	var mu sync.Mutex // protects granted
	granted := make(map[string]bool)
	for i := range 4 {
		sem := locker.NewSemaphore(open(t, srv.Client(t), session.Options{}), "x", limit)
		for j := range 4 {
			all.Go(func() {
				for k := range 8 {
					acquire := sem.Acquire
					if k%4 == 3 {
						acquire = sem.TryAcquire
					}
					p, err := acquire(deadline(t), 1+(i+j+k)%limit)
					if err != nil {
						continue // of TryAcquire
					}
					mu.Lock()
					granted[fmt.Sprint(p.Key(), " ", p.AcquiredRevision())] = true
					mu.Unlock()
					if err := p.Release(deadline(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	standing := make(map[string]int64) // create revisions
	admissions := 0
	for _, ev := range srv.History(t, permitsX) {
		key, rev := string(ev.Kv.Key), ev.Kv.ModRevision
		if ev.Type == mvccpb.Event_DELETE {
			delete(standing, key)
			continue
		}
		standing[key] = ev.Kv.CreateRevision
		if !granted[fmt.Sprint(key, " ", rev)] {
			continue
		}
		admissions++
		sum := 0
		for other, created := range standing {
			if created <= ev.Kv.CreateRevision {
				sum += weightOf(t, other)
			}
		}
		if sum > limit {
			t.Errorf("%s was admitted at revision %d with %d of %d permits", key, rev, sum, limit)
		}
	}
	if admissions < len(granted) || admissions < 4*4*6 {
		t.Errorf("%d admissions in the history, %d were granted", admissions, len(granted))
	}
	if left := srv.Keys(t, permitsX); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func weightOf(t *testing.T, key string) int {
	t.Helper()
	weight, _, _ := strings.Cut(strings.TrimPrefix(key, permitsX), "-")
	n, err := strconv.Atoi(weight)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWaitersOfASemaphoreAreServedInOrderOnARealEtcd(t *testing.T) {
	t.Parallel()
	const waiters, limit = 100, 4
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	sess := open(t, link.Client(), session.Options{TTL: 600 * time.Second})
	sem := locker.NewSemaphore(sess, "x", limit)
	all, err := sem.Acquire(deadline(t), limit)
	if err != nil {
		t.Fatal(err)
	}
	settled(t, link)
	before := link.Count()
	acquired := make(map[string]int64) // revisions, by key; protected by mu
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			err := sem.Do(deadline(t), 1, func(_ context.Context, p *locker.Permit) error {
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
