package election_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask is one probe.
func ask(t testing.TB, h http.Handler) (status int, answer map[string]any) {
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

// await takes the next of a channel, or fails.
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

// campaign wins a term, or fails the test.
func campaign(t testing.TB, el *election.Election, value string) *election.Term {
	t.Helper()
	term, err := el.Campaign(deadline(t), value)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func campaignLater(ctx context.Context, el *election.Election, value string) <-chan result {
	c := make(chan result, 1)
	go func() { // ends with ctx
		term, err := el.Campaign(ctx, value)
		c <- result{term, err}
	}()
	return c
}

// deadline is a context for what must not take long; a test that waits for it
// has failed.
func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var errWork = errors.New("the work failed")

// expect takes what is told next, and wants it to be this value; "" is nobody.
func expect(t testing.TB, c <-chan seen, value string) election.Leader {
	t.Helper()
	s := await(t, fmt.Sprintf("%q is seen to lead", value), c)
	if s.err != nil || s.leader.Value != value || (s.leader.Token == 0) != (value == "") || value == "" && s.leader != (election.Leader{}) {
		t.Fatalf("saw %+v, %v, want %q", s.leader, s.err, value)
	}
	return s.leader
}

// logs is what a session logged.
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

func (l *logs) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), part)
}

func newObserver(t testing.TB, el *election.Election) *election.Observer {
	t.Helper()
	o, err := el.Observer(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// observe ranges in the background until ctx ends, and hands on what it is told.
func observe(t testing.TB, ctx context.Context, el *election.Election) <-chan seen {
	t.Helper()
	c := make(chan seen)
	var joined sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	joined.Go(func() {
		defer close(c)
		for leader, err := range el.Observe(ctx) {
			select {
			case c <- seen{leader, err}:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); joined.Wait() })
	return c
}

// open starts a session and closes it with the test, link healed or not.
func open(t testing.TB, cli *clientv3.Client, o session.Options) *session.Session {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	sess, err := session.New(deadline(t), cli, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = sess.Close(ctx)
	})
	return sess
}

type opts = election.Options

const prefix = "holdfast/election/x/@/" // of the entries of election "x"

func resign(t testing.TB, term *election.Term) {
	t.Helper()
	if err := term.Resign(deadline(t)); err != nil {
		t.Fatal(err)
	}
}

type result struct {
	term *election.Term
	err  error
}

// soon is a context that ends while the test looks on.
func soon(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// story is what callbacks were told, in order.
type story struct {
	mu   sync.Mutex
	said []string
}

func (s *story) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *story) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}

// until skips what is told on the way to this value.
func until(t testing.TB, c <-chan seen, value string) election.Leader {
	t.Helper()
	for {
		s := await(t, fmt.Sprintf("%q is seen to lead", value), c)
		if s.err != nil {
			t.Fatalf("waiting for %q: %v", value, s.err)
		}
		if s.leader.Value == value {
			return s.leader
		}
	}
}

// won is the term of a campaign that is about to be won.
func won(t testing.TB, c <-chan result) *election.Term {
	t.Helper()
	r := await(t, "the campaign is won", c)
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.term
}

func yieldLater(ctx context.Context, term *election.Term) <-chan result {
	c := make(chan result, 1)
	go func() { // ends with ctx
		next, err := term.Yield(ctx)
		c <- result{next, err}
	}()
	return c
}

type seen struct {
	leader election.Leader
	err    error
}
