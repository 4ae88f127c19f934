package election_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quickAttempts notices a request that is not answered after 100 ms.
var quickAttempts = backoff.Policy{Attempt: 100 * time.Millisecond}

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

// settled counts the RPCs of a link once the session on it has nothing to send
// but renewals: the last that New sets off are the question for the server's
// version and the read of the session key.
func settled(t *testing.T, link *etcdtest.Link) etcdtest.Counts {
	t.Helper()
	for _, method := range []string{"Status", "Range"} { // Range: the watch of its key stands
		if err := link.Wait(deadline(t), method, 1); err != nil {
			t.Fatal(err)
		}
	}
	return link.Count()
}

// deadline is a context for what must not take long; a test that waits for it
// has failed.
func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// soon is a context that ends while the test looks on.
func soon(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition that has no event to wait for.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		if ok() {
			return
		}
	}
	t.Fatalf("did not happen: %s", what)
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

const prefix = "holdfast/election/x/@/" // of the entries of election "x"

// campaign wins a term, or fails the test.
func campaign(t testing.TB, el *election.Election, value string) *election.Term {
	t.Helper()
	term, err := el.Campaign(deadline(t), value)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

type result struct {
	term *election.Term
	err  error
}

func campaignLater(ctx context.Context, el *election.Election, value string) <-chan result {
	c := make(chan result, 1)
	go func() { // ends with ctx
		term, err := el.Campaign(ctx, value)
		c <- result{term, err}
	}()
	return c
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

func resign(t testing.TB, term *election.Term) {
	t.Helper()
	if err := term.Resign(deadline(t)); err != nil {
		t.Fatal(err)
	}
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

// candidate is the candidate's value in that of an entry.
func candidate(entry []byte) string {
	v, ok := queue.DecodeValue(entry)
	if !ok {
		return string(entry)
	}
	return v.Data
}

// isTxnThatPuts is a condition for faults: a Txn that puts this value.
func isTxnThatPuts(value string) func(any) bool {
	return func(request any) bool {
		for _, op := range successOps(request) {
			if put := op.GetRequestPut(); put != nil && candidate(put.Value) == value {
				return true
			}
		}
		return false
	}
}
