package locker_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

// watchers returns how many watches a member has, as it says itself.
func watchers(t *testing.T, srv *etcdtest.Server) string {
	t.Helper()
	req, err := http.NewRequestWithContext(deadline(t), http.MethodGet, "http://"+srv.Endpoints()[0]+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "etcd_debugging_mvcc_watcher_total "); ok {
			return n
		}
	}
	t.Fatal("etcd does not say how many watches it has")
	return ""
}

// Waiters give up while their watches are being created. Neither etcd nor etcd's client keeps anything of them, and the
// session need not be closed for that.
func TestWaitersThatGiveUpLeaveNoWatchesAndGoroutines(t *testing.T) {
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	// Many names: of those who wait for one, all but the first stand in a line of their session, and watch nothing.
	name := func(i int) string { return fmt.Sprintf("x%d", i) }
	holder := testkit.Open(t, srv.Client(t), session.Options{})
	for i := range 200 {
		mustLock(t, locker.NewMutex(holder, name(i)))
	}
	sess := testkit.Open(t, link.Client(), session.Options{})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	var before string
	testkit.Eventually(t, "the session keys are watched", func() bool {
		before = watchers(t, srv)
		return before == "2"
	})
	goroutines := runtime.NumGoroutine()
	link.Delay(20 * time.Millisecond)
	for _, n := range []int{1, 20, 40, 60} {
		ctx, giveUp := context.WithCancel(deadline(t))
		asked := link.Count()["Watch"]
		var waiters sync.WaitGroup
		for i := range 200 {
			waiters.Go(func() {
				if _, err := locker.NewMutex(sess, name(i)).Lock(ctx); err == nil {
					t.Error("two hold")
				}
			})
		}
		// The latest of them are not answered before a round trip from now.
		if err := link.Wait(deadline(t), "Watch", asked+n); err != nil {
			t.Error(err)
		}
		giveUp()
		waiters.Wait()
		t.Logf("after %d requests: %s watches, %d goroutines", n, watchers(t, srv), runtime.NumGoroutine())
	}
	began := time.Now()
	testkit.Eventually(t, "watches and goroutines are back at "+before, func() bool {
		now := runtime.NumGoroutine()
		if time.Since(began) > 5*time.Second {
			t.Fatalf("%s watches, %d goroutines; before %s and %d", watchers(t, srv), now, before, goroutines)
		}
		return now <= goroutines && watchers(t, srv) == before
	})
}
