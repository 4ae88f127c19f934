package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
	"github.com/holdfast-go/holdfast/view"
)

// show returns the owners in a queue, the holder first, and fails the test if anything else is not as it should be.
func show(t *testing.T, adm *admin.Client, kind holdfast.Kind, name string) []string {
	t.Helper()
	q, err := adm.Show(deadline(t), kind, name)
	if err != nil {
		t.Fatal(err)
	}
	var owners []string
	for _, e := range q.Entries {
		owners = append(owners, e.Owner)
		if e.TTL <= 0 || e.TTL > testkit.TTL || e.Token <= 0 || e.Foreign || e.QueuedAt.IsZero() {
			t.Errorf("entry %+v", e)
		}
	}
	return owners
}

// list returns "name owner waiting" of each name, or "error: …".
func list(ctx context.Context, adm *admin.Client, kind holdfast.Kind, prefix string) (all []string) {
	for s, err := range adm.List(ctx, kind, prefix) {
		if err != nil {
			return append(all, "error: "+err.Error())
		}
		all = append(all, fmt.Sprintf("%s %s %d", s.Name, s.Holder.Owner, s.Waiting))
	}
	return all
}

func TestLocksElectionsAndSessionsAreShown(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	for name, c := range map[string]struct {
		cli       *clientv3.Client
		namespace string
	}{
		"plain":               {srv.Client(t), ""},
		"another namespace":   {srv.Client(t), "payments"},
		"a namespaced client": {namespaced(srv.Client(t), "tenant-1/"), ""},
		"both":                {namespaced(srv.Client(t), "tenant-2/"), "payments"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := func(owner string) session.Options { return session.Options{Owner: owner, Namespace: c.namespace} }
			a, b := testkit.Open(t, c.cli, opts("a")), testkit.Open(t, c.cli, opts("b"))
			adm := admin.New(c.cli, admin.Options{Namespace: c.namespace})
			lk := mustLock(t, locker.NewMutex(a, "billing/job-7"))
			waits := make(chan *locker.Lock, 1)
			mu := locker.NewMutex(b, "billing/job-7")
			go func() {
				next, _ := mu.Lock(deadline(t))
				waits <- next
			}()
			term, err := election.New(b, "scheduler").With(election.Options{Value: "10.0.0.2"}).Campaign(deadline(t))
			if err != nil {
				t.Fatal(err)
			}
			next := watch(t, func(ctx context.Context) iter.Seq2[admin.Event, error] {
				return adm.Events(ctx, holdfast.KindLock, "billing/job-7")
			})
			for ev := ""; ev != "queued b 1"; { // before or after "acquired a"
				ev = next()
			}
			if got := show(t, adm, holdfast.KindLock, "billing/job-7"); fmt.Sprint(got) != "[a b]" {
				t.Errorf("lock: %v", got)
			}
			q, err := adm.Show(deadline(t), holdfast.KindElection, "scheduler")
			if h, held := q.Holder(); err != nil || !held || h.Value != "10.0.0.2" || h.Owner != "b" || h.Token != term.Token() {
				t.Errorf("election: %+v, %v", q, err)
			}
			locks := list(deadline(t), adm, holdfast.KindLock, "")
			elections := list(deadline(t), adm, holdfast.KindElection, "sched")
			if got := fmt.Sprint(locks, elections); got !=
				"[billing/job-7 a 1] [scheduler b 0]" {
				t.Error(got)
			}
			sessions := make(map[clientv3.LeaseID]string)
			for s, err := range adm.Sessions(deadline(t)) {
				if err != nil {
					t.Fatal(err)
				}
				sessions[s.Lease] = s.Owner
			}
			if len(sessions) != 2 || sessions[a.Lease()] != "a" || sessions[b.Lease()] != "b" {
				t.Errorf("sessions: %v", sessions)
			}
			mustUnlock(t, lk)
			for ev := ""; ev != "acquired b 0"; {
				ev = next()
			}
			mustUnlock(t, <-waits)
			expect(t, next, "released b 0")
			if err := term.Resign(deadline(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

func namespaced(cli *clientv3.Client, prefix string) *clientv3.Client {
	cli.KV = namespace.NewKV(cli.KV, prefix)
	cli.Watcher = namespace.NewWatcher(cli.Watcher, prefix)
	cli.Lease = namespace.NewLease(cli.Lease, prefix)
	return cli
}

// etcd's own locks and elections stand in the same queues as ours, and are shown as such.
func TestEntriesOfOtherClientsAreShownAndWatched(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	adm := admin.New(cli, admin.Options{})
	upstream, err := concurrency.NewSession(cli, concurrency.WithTTL(60))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = upstream.Close() })
	next := watch(t, func(ctx context.Context) iter.Seq2[admin.Event, error] {
		return adm.Events(ctx, admin.LockAt, "/locks/x")
	})
	theirs := concurrency.NewMutex(upstream, "/locks/x")
	if err := theirs.Lock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	expect(t, next, "queued foreign 0", "acquired foreign 0")
	ours := locker.NewMutexAt(open(t, cli, "ours"), "/locks/x")
	_, err = ours.TryLock(deadline(t))
	var failed *view.AcquireError
	if !errors.As(err, &failed) || failed.Place.Holder.Key != theirs.Key() || !failed.Place.Holder.Foreign ||
		failed.Place.Holder.Lease != upstream.Lease() {
		t.Errorf("TryLock: %v", err)
	}
	locked := make(chan *locker.Lock, 1)
	go func() {
		lk, _ := ours.Lock(deadline(t))
		locked <- lk
	}()
	expect(t, next, "queued ours 1")
	q, err := adm.Show(deadline(t), admin.LockAt, "/locks/x")
	if err != nil || len(q.Entries) != 2 {
		t.Fatalf("%+v, %v", q, err)
	}
	h, e := q.Entries[0], q.Entries[1]
	if !h.Foreign || h.Key != theirs.Key() || h.Lease != upstream.Lease() || h.TTL <= 0 ||
		!strings.Contains(h.String(), "another client's key") || e.Foreign || e.Owner != "ours" {
		t.Errorf("%+v", q.Entries)
	}
	if err := theirs.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	expect(t, next, "released foreign 0", "acquired ours 0")
	mustUnlock(t, <-locked)
	expect(t, next, "released ours 0")

	leader := concurrency.NewElection(upstream, "/elections/x")
	if err := leader.Campaign(deadline(t), `{"v":2,"owner":"not-ours","queued_at":"2026-01-31T12:00:00Z"}`); err != nil {
		t.Fatal(err)
	}
	q, err = adm.Show(deadline(t), admin.ElectionAt, "/elections/x")
	if h, _ := q.Holder(); err != nil || !h.Foreign || !strings.Contains(h.Value, "not-ours") || h.Owner != "" {
		t.Errorf("a candidate's value is not ours to read: %+v, %v", q, err)
	}
}

// What happens while the connection is cut is told in full, unless etcd has compacted it away.
func TestWatchGoesOnAfterACompaction(t *testing.T) {
	t.Parallel()
	for name, compact := range map[string]bool{"kept": false, "compacted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := etcdtest.Start(t)
			cli := srv.Client(t)
			a, b := open(t, cli, "a"), open(t, cli, "b")
			link := srv.Link(t)
			adm := admin.New(link.Client(), admin.Options{})
			lk := mustLock(t, locker.NewMutex(a, "x"))
			next := watch(t, func(ctx context.Context) iter.Seq2[admin.Event, error] {
				return adm.Events(ctx, holdfast.KindLock, "x")
			})
			expect(t, next, "queued a 0", "acquired a 0")
			link.Cut()
			mustUnlock(t, lk)
			mustUnlock(t, mustLock(t, locker.NewMutex(b, "x")))
			lk = mustLock(t, locker.NewMutex(a, "x"))
			if compact {
				srv.Compact(t)
			}
			link.Heal()
			if compact {
				expect(t, next, "gone a 0", "queued a 0", "acquired a 0")
			} else {
				expect(t, next, "released a 0", "queued b 0", "acquired b 0", "released b 0", "queued a 0", "acquired a 0")
			}
			srv.Revoke(t, lk.Lease())
			expect(t, next, "lost a 0")
		})
	}
}

// List of more names than a page has, on a real etcd; see BenchmarkList for more of them.
func TestListOfSeveralPages(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	const names = 6_000
	hold(t, srv.Client(t), names)
	before := link.Count()
	all := list(deadline(t), admin.New(link.Client(), admin.Options{}), holdfast.KindLock, "job/")
	first, last := "job/0000000 worker-a 0", fmt.Sprintf("job/%07d worker-a 0", names-1)
	if len(all) != names || all[0] != first || all[names-1] != last {
		t.Errorf("%d names, %v to %v", len(all), all[0], all[len(all)-1])
	}
	if n := link.Count()["Txn"] - before["Txn"]; n < 2 { // more if one was slow and sent again
		t.Errorf("%d requests", n)
	}
}

// watch runs a Watch until the test ends. Each call of next waits for one more event, as "what owner waiting".
func watch(t *testing.T, events func(context.Context) iter.Seq2[admin.Event, error]) (next func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(deadline(t))
	told, done := make(chan string, 1000), make(chan struct{})
	go func() { // joined by the cleanup
		defer close(done)
		for ev, err := range events(ctx) {
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				told <- "error: " + err.Error()
				return
			}
			who := ev.Entry.Owner
			if ev.Entry.Foreign {
				who = "foreign"
			}
			told <- fmt.Sprintf("%s %s %d", ev.What, who, ev.Waiting)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() string {
		select {
		case s := <-told:
			return s
		case <-ctx.Done():
			return "nothing more was told"
		}
	}
}

func expect(t *testing.T, next func() string, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := next(); got != w {
			t.Fatalf("told %q, want %q", got, w)
		}
	}
}
