package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
)

// marks is an EtcdMarks over a way that can fail, and a client beside that way.
type marks struct {
	*fencing.EtcdMarks
	srv  *etcdtest.Server
	link *etcdtest.Link
	cli  *clientv3.Client
}

func newMarks(t *testing.T, opts *fencing.EtcdMarksOptions) *marks {
	t.Helper()
	srv := etcdtest.Start(t)
	m := &marks{srv: srv, link: srv.Link(t), cli: srv.Client(t)}
	var err error
	if m.EtcdMarks, err = fencing.NewEtcdMarks(m.link.Client(), opts); err != nil {
		t.Fatal(err)
	}
	return m
}

// write is a guarded write of the token to k.
func (m *marks) write(ctx context.Context, c fencing.Claim) error {
	_, err := m.Commit(ctx, "r", c, clientv3.OpPut("k", c.Token.String()))
	return err
}

// values are all that k ever was.
func (m *marks) values(t *testing.T) (values []string) {
	t.Helper()
	for _, ev := range m.srv.History(t, "k") {
		values = append(values, string(ev.Kv.Value))
	}
	return values
}

func TestCommitRaisesTheMarkWithTheWork(t *testing.T) {
	m := newMarks(t, nil)
	for i, step := range []struct {
		token int64
		pass  bool
	}{{9, true}, {9, true}, {10, true}, {9, false}, {1, false}, {100, true}, {99, false}, {1<<48 | 1, true}, {1<<48 - 1, false}, {1<<58 - 1, true}, {1 << 57, false}} {
		before := m.link.Count()
		err := m.write(t.Context(), claim(step.token))
		if step.pass != (err == nil) || !step.pass && !errors.Is(err, fencing.ErrStale) {
			t.Errorf("token %d: %v", step.token, err)
		}
		n, want := m.link.Count().Since(before), 1
		if i == 0 {
			want = 3 // is there a mark, how many are there, and the work
		}
		if n.Total() != want {
			t.Errorf("token %d took the RPCs %v", step.token, n)
		}
		var below *fencing.MarkError
		if !step.pass && (!errors.As(err, &below) || below.Claim != claim(step.token) || below.Mark <= below.Claim.Token) {
			t.Errorf("token %d: %#v", step.token, err)
		}
	}
	if got, want := fmt.Sprint(m.values(t)), fmt.Sprint([]int64{9, 9, 10, 100, 1<<48 | 1, 1<<58 - 1}); got != want {
		t.Errorf("k was %s, want %s", got, want)
	}
	if mark, err := m.Mark(t.Context(), "r"); err != nil || mark != claim(1<<58-1) {
		t.Errorf("mark is %v, %v", mark, err)
	}
	if mark, err := m.Mark(t.Context(), "other"); err != nil || mark != (fencing.Claim{}) {
		t.Errorf("a resource never written has the mark %v, %v", mark, err)
	}
}

func TestCommitAnswersForItsOperations(t *testing.T) {
	m := newMarks(t, nil)
	for round := range 2 { // without a mark, and with one
		resp, err := m.Commit(t.Context(), "r", claim(5),
			clientv3.OpPut("k", "v"), clientv3.OpGet("k"),
			clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value("k"), "=", "other")}, nil, []clientv3.Op{clientv3.OpPut("else", "yes")}))
		if err != nil || len(resp.Responses) != 3 || resp.Header.GetClusterId() == 0 {
			t.Fatalf("round %d: %v, %v", round, resp, err)
		}
		if kv := resp.Responses[1].GetResponseRange().Kvs; len(kv) != 1 || kv[0].ModRevision != resp.Header.Revision {
			t.Errorf("round %d: read %v at revision %d", round, kv, resp.Header.Revision)
		}
		if len(m.srv.Keys(t, "else")) != 1 {
			t.Errorf("round %d: the transaction inside did not run", round)
		}
	}
	if err := m.write(t.Context(), claim(0)); !errors.Is(err, fencing.ErrNoToken) {
		t.Errorf("token zero: %v", err)
	}
	for name, c := range map[string]struct {
		ops  []clientv3.Op
		want error
	}{
		"empty key":         {[]clientv3.Op{clientv3.OpPut("", "v")}, fencing.ErrEmptyKey},
		"no operation":      {[]clientv3.Op{{}}, fencing.ErrTxnMisuse},
		"one op too many":   {puts(fencing.MaxMarkOps + 1), fencing.ErrTooManyOps},
		"as many as can be": {puts(fencing.MaxMarkOps), nil},
	} {
		for _, token := range []int64{5, 5} { // a mark stands
			if _, err := m.Commit(t.Context(), "r", claim(token), c.ops...); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := m.Commit(t.Context(), "first", claim(5), puts(fencing.MaxMarkOps)...); err != nil {
		t.Errorf("as many as can be, with no mark yet: %v", err)
	}
}

// Names that begin alike, or look alike once written, are different names.
func TestMarksOfAnotherNameAreNotCompared(t *testing.T) {
	m := newMarks(t, nil)
	for i, name := range []string{"job", "a b", "100%", "\x00"} {
		resource := fmt.Sprint("r", i)
		if err := m.Admit(t.Context(), resource, fencing.Claim{Name: name, Token: 50}); err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{"jo", "job2", "job/2", "a", "a%20b", "100%25", "100", "%00", "\x00\x00", "Job"} {
			for _, token := range []fencing.Token{1, 50, 99} {
				c := fencing.Claim{Name: other, Token: token}
				_, err := m.Commit(t.Context(), resource, c, clientv3.OpPut("k", "v"))
				if !errors.Is(err, fencing.ErrOtherName) || errors.Is(err, fencing.ErrStale) {
					t.Errorf("%v over a mark of %q: %v", c, name, err)
				}
				if err := m.Admit(t.Context(), resource, c); !errors.Is(err, fencing.ErrOtherName) {
					t.Errorf("%v over a mark of %q is admitted: %v", c, name, err)
				}
			}
		}
		if _, err := m.Commit(t.Context(), resource, fencing.Claim{Name: name, Token: 50}); err != nil {
			t.Errorf("%q itself: %v", name, err)
		}
	}
	if got := m.values(t); len(got) != 0 {
		t.Errorf("k was written: %v", got)
	}
}

func TestLateCommitIsRefusedOnceALargerTokenHasCommitted(t *testing.T) {
	m := newMarks(t, nil)
	if err := m.write(t.Context(), claim(5)); err != nil {
		t.Fatal(err)
	}
	held := m.link.Hold("Txn")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-held.Arrived(); cancel() }() // ends with Arrived, which the next line waits for
	if err := m.write(ctx, claim(5)); !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) || errors.Is(err, fencing.ErrStale) {
		t.Errorf("given up: %v", err)
	}
	if err := m.write(t.Context(), claim(7)); err != nil {
		t.Fatal(err)
	}
	held.Deliver()
	<-held.Delivered()
	if got := fmt.Sprint(m.values(t)); got != "[5 7]" {
		t.Errorf("k was %s", got)
	}
}

func TestCommitIsNeverSentTwice(t *testing.T) {
	m := newMarks(t, nil)
	m.link.LoseReply("Txn", 1, codes.Unavailable)
	before := m.link.Count()
	if err := m.write(t.Context(), claim(5)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		t.Errorf("error is %v", err)
	}
	if n := m.link.Count().Since(before); n.Total() != 1 {
		t.Errorf("sent as %v", n)
	}
}

func TestAdmitReadsAndWritesOnlyForANewHolder(t *testing.T) {
	m := newMarks(t, nil)
	for _, step := range []struct {
		token       int64
		pass        bool
		reads, txns int
	}{{9, true, 2, 1}, {9, true, 1, 0}, {10, true, 1, 1}, {9, false, 1, 0}} {
		before := m.link.Count()
		err := m.Admit(t.Context(), "r", claim(step.token))
		if step.pass != (err == nil) || !step.pass && !errors.Is(err, fencing.ErrStale) {
			t.Errorf("token %d: %v", step.token, err)
		}
		if n := m.link.Count().Since(before); n["Range"] != step.reads || n["Txn"] != step.txns || n.Total() != step.reads+step.txns {
			t.Errorf("token %d took the RPCs %v", step.token, n)
		}
	}
	// Both kinds of use share the mark.
	if err := m.write(t.Context(), claim(9)); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a token below what was admitted commits: %v", err)
	}
}

func TestAdmitWhoseReplyIsLostAdmits(t *testing.T) {
	m := newMarks(t, nil)
	m.link.LoseReply("Txn", 1, codes.Unavailable)
	if err := m.Admit(t.Context(), "r", claim(5)); err != nil {
		t.Error(err)
	}
	if mark, _ := m.Mark(t.Context(), "r"); mark != claim(5) {
		t.Errorf("mark is %v", mark)
	}
}

// A raise that arrives late must not lower what was raised meanwhile.
func TestLateAdmitDoesNotLowerTheMark(t *testing.T) {
	m := newMarks(t, nil)
	held := m.link.Hold("Txn")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-held.Arrived(); cancel() }() // ends with Arrived, which the next line waits for
	if err := m.Admit(ctx, "r", claim(5)); err == nil {
		t.Error("admitted without an answer")
	}
	if err := m.Admit(t.Context(), "r", claim(7)); err != nil {
		t.Fatal(err)
	}
	held.Deliver()
	<-held.Delivered()
	if mark, _ := m.Mark(t.Context(), "r"); mark != claim(7) {
		t.Errorf("mark is %v", mark)
	}
}

func TestNothingIsAdmittedWhileEtcdCannotBeAsked(t *testing.T) {
	m := newMarks(t, &fencing.EtcdMarksOptions{Timeout: 50 * time.Millisecond})
	m.link.Cut()
	err := m.Admit(context.Background(), "r", claim(5))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fencing.ErrStale) {
		t.Errorf("error is %v", err)
	}
}

func TestMarkThatCannotBeReadIsNotTakenForNone(t *testing.T) {
	m := newMarks(t, nil)
	for _, value := range []string{"", "7", "job", "job 7", "job 000000000000000000x", "job 0000000000000000000", "job  000000000000000007",
		"j%6Fb 0000000000000000007", " 0000000000000000007", "job 00000000000000000007", "job 9999999999999999999"} {
		if _, err := m.cli.Put(t.Context(), "holdfast/mark/r", value); err != nil {
			t.Fatal(err)
		}
		if err := m.Admit(t.Context(), "r", claim(1<<62)); err == nil {
			t.Errorf("mark %q: admitted", value)
		}
		if err := m.write(t.Context(), claim(1)); err == nil {
			t.Errorf("mark %q: token 1 committed", value)
		}
	}
	if got := m.values(t); len(got) != 0 {
		t.Errorf("k was written: %v", got)
	}
}

func TestMarksOptionsAreChecked(t *testing.T) {
	cli := clientv3.NewCtxClient(context.Background())
	for name, o := range map[string]fencing.EtcdMarksOptions{
		"slash":            {Namespace: "a/b"},
		"reserved":         {Namespace: "@a"},
		"long":             {Namespace: strings.Repeat("a", 65)},
		"negative timeout": {Timeout: -1},
		"retry":            {Retry: backoff.Policy{Multiplier: 0.5}},
		"long attempt":     {Retry: backoff.Policy{Attempt: 5 * time.Second}},
	} {
		if m, err := fencing.NewEtcdMarks(cli, &o); m != nil || err == nil {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	if m, err := fencing.NewEtcdMarks(nil, nil); m != nil || err == nil {
		t.Errorf("without a client: %v, %v", m, err)
	}
}

// Replicas that share nothing but etcd; etcd's own history says what landed.
func TestNoStaleCommitLandsAmongManyReplicas(t *testing.T) {
	const writers, rounds = 16, 25
	m := newMarks(t, nil)
	replicas := []*fencing.EtcdMarks{m.EtcdMarks}
	other, err := fencing.NewEtcdMarks(m.srv.Client(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	replicas = append(replicas, other)
	var newest, refused, landed atomic.Int64
	newest.Store(1)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range rounds {
				token := newest.Load()
				if w%4 == 0 {
					token = newest.Add(1)
				} else {
					token = max(1, token-rand.Int64N(3))
				}
				_, err := replicas[w%2].Commit(t.Context(), "r", claim(token), clientv3.OpPut("k", fmt.Sprint(token)))
				switch {
				case errors.Is(err, fencing.ErrStale):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				default:
					landed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	values, last := m.values(t), 0
	for _, v := range values {
		token, err := strconv.Atoi(v)
		if err != nil || token < last {
			t.Fatalf("%s landed after %d", v, last)
		}
		last = token
	}
	if len(values) != int(landed.Load()) || landed.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d landed, %d by etcd's record, %d refused", landed.Load(), len(values), refused.Load())
	}
}
