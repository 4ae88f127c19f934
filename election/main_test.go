package election_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { leak.Main(m) }

// prefix is that of the entries of election "x".
const prefix = "holdfast/election/x/@/"

var errWork = errors.New("the work failed")

type (
	opts   = election.Options
	leadFn = func(context.Context, *election.Term) error
)

// sim is an etcd in virtual time, and one session whose link the test can disturb.
type sim struct {
	srv  *etcdfake.Server
	link *etcdfake.Link
	sess *session.Session
	log  *logs // of sess
}

// simulate runs a test in virtual time.
func simulate(t *testing.T, f func(t *testing.T, s *sim)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		s := &sim{srv: newServer(t), log: new(logs)}
		s.link = s.srv.Link()
		s.sess = open(t, s.link.Client(), session.Options{Logger: s.log.logger()})
		t.Cleanup(s.link.Heal)
		f(t, s)
	})
}

// election returns election "x" on the disturbed session.
func (s *sim) election() *election.Election { return election.New(s.sess, "x") }

// other returns election "x" on a session with its own client.
func (s *sim) other(t *testing.T) *election.Election {
	return election.New(open(t, s.srv.Client(t), session.Options{}), "x")
}

// entries returns the entries of election "x" after all goroutines have come to
// rest.
func (s *sim) entries() []*mvccpb.KeyValue {
	synctest.Wait()
	return s.srv.Keys(prefix)
}

// newServer starts an etcd for tests that do not need virtual time.
func newServer(t testing.TB) *etcdfake.Server {
	srv := etcdfake.New(nil)
	t.Cleanup(srv.Close)
	return srv
}

// open starts a session and closes it with the test.
func open(t testing.TB, cli *clientv3.Client, o session.Options) *session.Session {
	t.Helper()
	o.Clock = session.MonotonicClock()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	sess, err := session.New(deadline(t), cli, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sess.Close(context.Background()) })
	return sess
}

// deadline bounds what would otherwise hang.
func deadline(t testing.TB) context.Context { return within(t, time.Hour) }

// within returns a context with a timeout, which is canceled with the test.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// await receives from c, or fails the test.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-deadline(t).Done():
		t.Fatalf("did not happen: %s", what)
		panic("unreachable")
	}
}

// later runs f on a goroutine, which ends with the contexts that f uses.
func later(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

type result struct {
	term *election.Term
	err  error
}

// termLater runs f on a goroutine, which ends with the contexts that f uses.
func termLater(f func() (*election.Term, error)) <-chan result {
	c := make(chan result, 1)
	go func() {
		term, err := f()
		c <- result{term, err}
	}()
	return c
}

// campaign wins a term.
func campaign(t testing.TB, el *election.Election, value string) *election.Term {
	t.Helper()
	term, err := el.Campaign(deadline(t), value)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func campaignLater(ctx context.Context, el *election.Election, value string) <-chan result {
	return termLater(func() (*election.Term, error) { return el.Campaign(ctx, value) })
}

// won waits for a campaign to be won.
func won(t testing.TB, c <-chan result) *election.Term {
	t.Helper()
	r := await(t, "the campaign is won", c)
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.term
}

func resign(t testing.TB, term *election.Term) {
	t.Helper()
	if err := term.Resign(deadline(t)); err != nil {
		t.Fatal(err)
	}
}

// observation is one pair that Observe yields.
type observation struct {
	leader election.Leader
	err    error
}

// observe ranges over the leaders in the background until the test ends.
func observe(t testing.TB, from interface {
	Observe(context.Context) iter.Seq2[election.Leader, error]
}) <-chan observation {
	t.Helper()
	c := make(chan observation)
	var joined sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	joined.Go(func() {
		defer close(c)
		for leader, err := range from.Observe(ctx) {
			select {
			case c <- observation{leader, err}:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); joined.Wait() })
	return c
}

// expect receives the next observation and checks its value; "" means no leader.
func expect(t testing.TB, c <-chan observation, value string) election.Leader {
	t.Helper()
	o := await(t, fmt.Sprintf("%q is seen to lead", value), c)
	vacant := o.leader == election.Leader{}
	if o.err != nil || o.leader.Value != value || vacant != (value == "") {
		t.Fatalf("saw %+v, %v, want %q", o.leader, o.err, value)
	}
	return o.leader
}

func startObserver(t testing.TB, el *election.Election) *election.Observer {
	t.Helper()
	o, err := el.Observer(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// probe asks a health handler.
func probe(t testing.TB, h http.Handler) (status int, answer map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%q: %v", w.Body, err)
	}
	if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", w.Header())
	}
	return w.Code, answer
}

// logs collects what a session logs.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// lines returns the logged lines that contain part.
func (l *logs) lines(part string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

func (l *logs) has(part string) bool { return len(l.lines(part)) > 0 }
