package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/examples/internal/demotest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

// replica starts a replica and returns it with the address of its probes.
func replica(t *testing.T, srv *etcdtest.Server, name string, args ...string) (p *demotest.Process, probes string) {
	t.Helper()
	p = demotest.Start(t, append(args,
		"--endpoints", srv.Endpoints()[0], "--name", name, "--listen", "127.0.0.1:0")...)
	return p, p.Await(t, `answers (http://[\d.:]+)/readyz`)[1]
}

func get(t *testing.T, url string) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// queued waits until n replicas are in the election.
func queued(t *testing.T, srv *etcdtest.Server, n int) {
	t.Helper()
	srv.WaitForKeys(t, "holdfast/election/examples/controller/@/", n)
}

func TestLeaderFinishesItsRoundAndTheNextOneLeads(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	first, firstProbes := replica(t, srv, "node-1")
	first.Await(t, "node-1 +leads")
	second, secondProbes := replica(t, srv, "node-2", "--takes", "1ms")
	queued(t, srv, 2)
	for url, want := range map[string]int{
		firstProbes + "/readyz": 200, firstProbes + "/leader": 200,
		secondProbes + "/readyz": 200, secondProbes + "/leader": 503,
	} {
		if got := get(t, url); got != want {
			t.Errorf("%s: %d, want %d", url, got, want)
		}
	}

	first.Await(t, "begins round 2")
	first.Signal(t, syscall.SIGTERM)
	stdout, stderr, code := first.Wait()
	if code != 0 {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	demotest.CheckShown(t, stdout, false)
	if n, finished := strings.Count(stdout, "begins round"), strings.Count(stdout, "finished round"); n != finished {
		t.Errorf("%d rounds were begun and %d finished:\n%s", n, finished, stdout)
	}

	second.Await(t, "node-2 +leads")
	second.Await(t, "finished round 1 ")
	if got := get(t, secondProbes+"/leader"); got != 200 {
		t.Errorf("/leader of the next leader: %d", got)
	}
	newer := false
	for _, ev := range srv.History(t, status) {
		if strings.HasSuffix(string(ev.Kv.Value), "node-2") {
			newer = true
		} else if newer {
			t.Errorf("node-1 wrote %s after node-2 had", ev.Kv.Value)
		}
	}
	if !newer {
		t.Error("node-2 has written nothing")
	}
}

func TestLeaderThatDoesNotDrainIsReplaced(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	stuck, _ := replica(t, srv, "node-1", "--takes", "1h", "--drain", "200ms")
	stuck.Await(t, "begins round 1")
	next, _ := replica(t, srv, "node-2")
	queued(t, srv, 2)

	stuck.Signal(t, syscall.SIGTERM)
	next.Await(t, "node-2 +leads")
	stdout, stderr, code := stuck.Wait()
	if code != 1 || !strings.Contains(stderr, "has not returned after its term ended") {
		t.Errorf("exit code %d, want 1 and the reason\n%s%s", code, stdout, stderr)
	}
}

// output is what an example prints while a test looks.
type output struct {
	mu  sync.Mutex // protects out
	out strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.Write(b)
}

// take returns what was printed since it was called before.
func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.out.Reset()
	return o.out.String()
}

// A write that is not answered, and a short suspension, cost rounds. A lost term ends the work.
func TestLeaderGoesOnAfterAShortOutage(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		sess, err := session.New(t.Context(), link.Client(), session.Options{
			Logger: slog.New(slog.DiscardHandler), Clock: session.MonotonicClock(), // virtual, as the test
		})
		if err != nil {
			t.Fatal(err)
		}
		defer sess.Close(context.Background())
		term, err := election.New(sess, "examples/controller").Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out output
		ended := make(chan error, 1)
		go func() { ended <- lead(t.Context(), demo.New(link.Client(), &out), term) }() // received below
		// rounds returns how many were finished in that time, and what was printed.
		rounds := func(d time.Duration) (n int, printed string) {
			time.Sleep(d)
			synctest.Wait()
			printed = out.take()
			return strings.Count(printed, "has finished"), printed
		}

		rounds(500 * time.Millisecond)
		lost := false
		link.Plan(func(c etcdfake.Call) (fate etcdfake.Fate) {
			fate.LoseRequest = !lost && strings.Contains(fmt.Sprint(c.Request), status) // the leader does not know that
			lost = lost || fate.LoseRequest
			return fate
		})
		if n, printed := rounds(3 * time.Second); n != 2 || !strings.Contains(printed, "outcome unknown") {
			t.Errorf("a write was lost, and %d rounds of 3 were finished:\n%s", n, printed)
		}
		link.LoseRequest("LeaseKeepAlive", 0)
		for until := time.Now().Add(time.Minute); !errors.Is(sess.Check(), holdfast.ErrSuspended); rounds(time.Second) {
			if time.Now().After(until) {
				t.Fatal("not suspended for a minute")
			}
		}
		if n, printed := rounds(2 * time.Second); n != 0 || !strings.Contains(printed, "suspended") {
			t.Errorf("suspended, and %d rounds were finished:\n%s", n, printed)
		}
		link.Heal()
		rounds(5 * time.Second)
		if n, printed := rounds(3 * time.Second); n != 3 {
			t.Errorf("well again, and %d rounds of 3 were finished:\n%s", n, printed)
		}

		if _, err := srv.Client(t).Revoke(t.Context(), term.Lease()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, fencing.ErrStale) {
			t.Errorf("the term is lost: %v", err)
		}
	})
}
