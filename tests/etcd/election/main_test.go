// Package election_test runs elections against a real etcd, for what depends on the
// server: comparisons, watches, compaction, permissions, requests that arrive late,
// and etcd's own clients. Everything else is tested in package election itself.
package election_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

var (
	open       = testkit.Open
	deadline   = testkit.Deadline
	within     = testkit.Within
	untilHeld  = testkit.UntilHeld
	eventually = testkit.Eventually
)

func TestMain(m *testing.M) { testkit.Main(m) }

// prefix is that of the entries of election "x".
const prefix = "holdfast/election/x/@/"

// newElection returns election "x" on its own session.
func newElection(t testing.TB, cli *clientv3.Client, o session.Options) *election.Election {
	t.Helper()
	return election.New(open(t, cli, o), "x")
}

// settled returns the RPC counts of a link once its session sends nothing but renewals. The last requests of
// session.New are the query of the server's version and the read after the watch of the session key is created.
func settled(t *testing.T, link *etcdtest.Link) etcdtest.Counts {
	t.Helper()
	for _, method := range []string{"Status", "Range"} {
		if err := link.Wait(deadline(t), method, 1); err != nil {
			t.Fatal(err)
		}
	}
	return link.Count()
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

// campaign wins a term.
func campaign(t testing.TB, el *election.Election, value string) *election.Term {
	t.Helper()
	term, err := el.With(election.Options{Value: value}).Campaign(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return term
}

type result struct {
	term *election.Term
	err  error
}

// campaignLater campaigns on a goroutine, which ends with ctx.
func campaignLater(ctx context.Context, el *election.Election, value string) <-chan result {
	c := make(chan result, 1)
	go func() {
		term, err := el.With(election.Options{Value: value}).Campaign(ctx)
		c <- result{term, err}
	}()
	return c
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

func proclaim(t testing.TB, term *election.Term, value string) {
	t.Helper()
	if err := term.Proclaim(deadline(t), value); err != nil {
		t.Fatal(err)
	}
}

// candidate returns the candidate's value in that of an entry.
func candidate(entry []byte) string {
	v, ok := layout.DecodeValue(entry)
	if !ok {
		return string(entry)
	}
	return v.Data
}

func successOps(request any) []*pb.RequestOp {
	if r, ok := request.(*pb.TxnRequest); ok {
		return r.Success
	}
	return nil
}

// isTxnThatPuts matches a Txn that puts this candidate's value.
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

// reader is what an Election and a Reader have in common.
type reader interface {
	Leader(context.Context) (election.Leader, error)
	Watch(context.Context) iter.Seq2[election.Leader, error]
	Observer(context.Context) (*election.Observer, error)
}

// observation is one pair that Watch yields.
type observation struct {
	leader election.Leader
	err    error
}

// observe ranges over the leaders in the background until the test ends.
func observe(t testing.TB, r reader) <-chan observation {
	t.Helper()
	c := make(chan observation)
	var joined sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	joined.Go(func() {
		defer close(c)
		for leader, err := range r.Watch(ctx) {
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

// until receives observations up to the one of this value.
func until(t testing.TB, c <-chan observation, value string) election.Leader {
	t.Helper()
	for {
		o := await(t, fmt.Sprintf("%q is seen to lead", value), c)
		if o.err != nil {
			t.Fatalf("waiting for %q: %v", value, o.err)
		}
		if o.leader.Value == value {
			return o.leader
		}
	}
}
