package admin_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/locker"
)

// following is what a Watch has told.
type following struct {
	mu      sync.Mutex
	told    int
	queues  map[string]admin.Queue // that stand now
	changes []string
}

func follow(t *testing.T, adm *admin.Client, kind holdfast.Kind, prefix string) *following {
	f := &following{queues: make(map[string]admin.Queue)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // joined by the cleanup
		defer close(done)
		for q, err := range adm.Watch(ctx, kind, prefix) {
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			h, _ := q.Holder()
			f.mu.Lock()
			f.told++
			f.changes = append(f.changes, fmt.Sprintf("%s: %s +%d", q.Name, h.Owner, q.Waiting()))
			if f.queues[q.Name] = q; len(q.Entries) == 0 {
				delete(f.queues, q.Name)
			}
			f.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return f
}

// take returns what was told since the last call.
func (f *following) take() string {
	time.Sleep(100 * time.Millisecond) // messages take 1 ms
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	all := strings.Join(f.changes, ", ")
	f.changes = nil
	return all
}

// agrees checks that the names that stand are those of a List, with holders and waiters.
func (f *following) agrees(t *testing.T, adm *admin.Client, kind holdfast.Kind, prefix string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for s, err := range adm.List(t.Context(), kind, prefix) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		q := f.queues[s.Name]
		h, held := q.Holder()
		if kind == holdfast.KindSemaphore { // of which List takes the first that waits for one that holds
			held, h = s.Held, s.Holder
		}
		if held != s.Held || held && h.Key != s.Holder.Key || q.Waiting() != s.Waiting {
			t.Errorf("%s %s: told %+v, listed %+v", kind, s.Name, q, s)
		}
	}
	if n != len(f.queues) {
		t.Errorf("%d %ss stand, told %d: %v", n, kind, len(f.queues), f.queues)
	}
}

func TestWatchTellsEachNameAfterEachChange(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		held, giveUp := queueUp(t, "billing/x", a, b)
		other := mustLock(t, a, "other")
		f := follow(t, adm, holdfast.KindLock, "billing/")
		if told := f.take(); told != "billing/x: a +1" {
			t.Errorf("what stands: %q", told)
		}
		_ = other.Unlock(t.Context()) // not below the prefix
		giveUp[0]()
		if told := f.take(); told != "billing/x: a +0" {
			t.Errorf("b gives up: %q", told)
		}
		_ = held.Unlock(t.Context())
		if told := f.take(); told != "billing/x:  +0" {
			t.Errorf("a releases: %q", told)
		}
		mustLock(t, b, "billing/y")
		if told := f.take(); told != "billing/y: b +0" {
			t.Errorf("b holds: %q", told)
		}
		srv.Revoke(b.Lease())
		if told := f.take(); !strings.HasPrefix(told, "billing/y:  +0") {
			t.Errorf("b is lost: %q", told)
		}
	})
}

// Locks, readers, trees, a downgradable lock and a semaphore: what was told is what is listed.
func TestWatchAgreesWithList(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		all := make(map[holdfast.Kind]*following)
		for _, kind := range layout.Kinds {
			all[kind] = follow(t, adm, kind, "")
		}
		check := func() {
			t.Helper()
			for kind, f := range all {
				f.agrees(t, adm, kind, "")
			}
		}
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ctx := t.Context()
		for _, sess := range []int{0, 1} {
			s := a
			if sess == 1 {
				s = b
			}
			go func() { _, _ = locker.NewRWMutex(s, "rw").RLock(ctx) }()
			go func() { _, _ = locker.NewRWMutex(s, "down").LockDowngradable(ctx) }()
			go func() { _, _ = locker.NewTreeMutex(s, fmt.Sprint("top/", sess)).Lock(ctx) }()
			go func() { _, _ = locker.NewTreeMutex(s, "top").Lock(ctx) }()
			go func() { _, _ = locker.NewSemaphore(s, "pool", 2).Acquire(ctx, 2) }()
			time.Sleep(time.Second)
			check()
		}
		queueUp(t, "x", a, b)
		check()
		srv.Revoke(a.Lease())
		check()
		time.Sleep(time.Minute)
		check()
		if all[holdfast.KindSemaphore].queues["pool"].Limit != 2 {
			t.Errorf("%+v", all[holdfast.KindSemaphore].queues)
		}
	})
}

// The watch is silent although its connection lives: the keys are looked at once a minute.
func TestWatchWhoseWatchIsSilentIsNotBehindForLong(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		link := srv.Link()
		adm := admin.New(link.Client(), admin.Options{})
		held := mustLock(t, a, "x")
		f := follow(t, adm, holdfast.KindLock, "")
		f.take()
		link.Plan(func(c etcdfake.Call) (fate etcdfake.Fate) {
			if c.Request == nil {
				fate.Reply = time.Hour
			}
			return fate
		})
		mustLock(t, a, "y")
		_ = held.Unlock(t.Context())
		if told := f.take(); told != "" {
			t.Fatalf("the watch is not silent: %s", told)
		}
		time.Sleep(time.Minute + time.Second)
		if told := f.take(); told != "y: a +0, x:  +0" {
			t.Errorf("told %q", told)
		}
		link.Heal()
		time.Sleep(2 * time.Minute)
		f.agrees(t, adm, holdfast.KindLock, "")
	})
}

func TestWatchRefusesBadInput(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *etcdfake.Server, adm *admin.Client) {
		for _, err := range adm.Watch(t.Context(), "shelf", "") {
			var bad *holdfast.ArgumentError
			if !errors.As(err, &bad) || bad.Argument != "kind" {
				t.Errorf("%v", err)
			}
		}
	})
}

// 10,000 names stand, and 1,000 locks are taken and released: one watch, four reads of 5,000 keys to begin with, and a
// read of each 5,000 keys, without values, once a minute. Each change of a key is one event, and one change is told.
func TestWhatWatching10000NamesCosts(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		const names, changes = 10_000, 1000
		key := func(i int) string { return fmt.Sprintf("holdfast/lock/job/%05d/@/694d-AAAAAAAAAAAAAAAA", i) }
		const value = `{"v":2,"owner":"worker-17","queued_at":"2026-01-31T12:00:00Z"}`
		for i := range names {
			srv.Put(key(i), value)
			srv.Put(strings.Replace(key(i), "/@/", "/@claim/", 1), "")
		}
		link := srv.Link()
		heap := func() int {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		before := heap()
		f := follow(t, admin.New(link.Client(), admin.Options{}), holdfast.KindLock, "")
		f.changes = nil
		live, first := heap()-before, link.Count()
		if f.told != names || first["Watch"] != 1 || first["Txn"]+first["Range"] > 4 {
			t.Errorf("%d names were told, sent %v", f.told, first)
		}
		f.told = 0
		for i := range changes {
			srv.Put(key(names+i), value)
			srv.Delete(key(names + i))
		}
		synctest.Wait()
		if after := link.Count(); after["Txn"]+after["Range"] != first["Txn"]+first["Range"] || f.told > 2*changes {
			t.Errorf("%d events: told %d, sent %v, before %v", 2*changes, f.told, after, first)
		}
		time.Sleep(10*time.Minute + time.Second)
		later := link.Count()
		rest := later["Txn"] + later["Range"] - first["Txn"] - first["Range"]
		if rest != 10*4 || later["Watch"] != 1 {
			t.Errorf("in 10 minutes at rest: %d reads, sent %v", rest, later)
		}
		t.Logf("%d names: sent %v to begin with, %d reads in ten minutes at rest, %d bytes in memory for each name; %d "+
			"events were told as %d changes", names, first, rest, live/names, 2*changes, f.told)
	})
}
