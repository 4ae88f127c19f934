package etcdfence_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/fencing/fencetest"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
)

func TestCommitRaisesTheMarkWithTheWork(t *testing.T) {
	e := newEtcd(t)
	m := e.marks(t, etcdfence.MarksOptions{})
	for _, step := range []struct {
		token int64
		pass  bool
	}{
		{9, true}, {9, true}, {10, true}, {9, false}, {1, false}, {100, true}, {99, false},
		{1<<48 | 1, true}, {1<<48 - 1, false}, {1<<58 - 1, true}, {1 << 57, false},
	} {
		sent, total := e.rpcs(func() {
			err := write(t.Context(), m, claim(step.token))
			if step.pass != (err == nil) || !step.pass && !errors.Is(err, fencing.ErrStale) {
				t.Errorf("token %d: %v", step.token, err)
			}
			var below *fencing.MarkError
			if !step.pass && (!errors.As(err, &below) || below.Claim != claim(step.token) ||
				below.Mark <= below.Claim.Token) {
				t.Errorf("token %d: %#v", step.token, err)
			}
		})
		if total != 1 {
			t.Errorf("token %d: sent %v", step.token, sent)
		}
	}
	if got, want := fmt.Sprint(e.values("k")), fmt.Sprint([]int64{9, 9, 10, 100, 1<<48 | 1, 1<<58 - 1}); got != want {
		t.Errorf("k was %s, want %s", got, want)
	}
	if mark, err := m.Mark(t.Context(), "r"); err != nil || mark != claim(1<<58-1) {
		t.Errorf("mark is %v, %v", mark, err)
	}
	if mark, err := m.Mark(t.Context(), "other"); err != nil || mark != (fencing.Claim{}) {
		t.Errorf("a resource never written has the mark %v, %v", mark, err)
	}
}

func TestMarksInEtcdAreAGuard(t *testing.T) {
	e := newEtcd(t)
	through := func(m *etcdfence.Marks) fencetest.Write {
		return func(ctx context.Context, resource string, c fencing.Claim, data string, _ func() error) error {
			_, err := m.Commit(ctx, resource, c, clientv3.OpPut("data/"+resource, data))
			return err
		}
	}
	other, err := etcdfence.NewMarks(e.cli, etcdfence.MarksOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fencetest.Test(t, fencetest.Guard{
		Write: through(e.marks(t, etcdfence.MarksOptions{})),
		Other: through(other),
		Read: func(ctx context.Context, resource string) (data string, err error) {
			resp, err := e.cli.Get(ctx, "data/"+resource)
			if err == nil && len(resp.Kvs) > 0 {
				data = string(resp.Kvs[0].Value)
			}
			return data, err
		},
		LoseReply: func() { e.link.LoseReply("Txn", 1, codes.Unavailable) },
	})
}

func TestCommitReturnsTheResultsOfItsOperations(t *testing.T) {
	e := newEtcd(t)
	m := e.marks(t, etcdfence.MarksOptions{})
	isOther := []clientv3.Cmp{clientv3.Compare(clientv3.Value("k"), "=", "other")}
	for round := range 2 { // without a mark, and with one
		resp, err := m.Commit(t.Context(), "r", claim(5), clientv3.OpPut("k", "v"), clientv3.OpGet("k"),
			clientv3.OpTxn(isOther, nil, []clientv3.Op{clientv3.OpPut("else", "yes")}))
		if err != nil || len(resp.Responses) != 3 || resp.Header.GetClusterId() == 0 {
			t.Fatalf("round %d: %v, %v", round, resp, err)
		}
		if kv := resp.Responses[1].GetResponseRange().Kvs; len(kv) != 1 || kv[0].ModRevision != resp.Header.Revision {
			t.Errorf("round %d: read %v at revision %d", round, kv, resp.Header.Revision)
		}
		if len(e.Keys("else")) != 1 {
			t.Errorf("round %d: the inner transaction did not run", round)
		}
	}
}

func TestInvalidCommitIsRefused(t *testing.T) {
	m := newEtcd(t).marks(t, etcdfence.MarksOptions{})
	if err := write(t.Context(), m, claim(0)); !errors.Is(err, holdfast.ErrNoToken) {
		t.Errorf("token zero: %v", err)
	}
	for name, c := range map[string]struct {
		ops []clientv3.Op
		bad bool
	}{
		"empty key":        {[]clientv3.Op{clientv3.OpPut("", "v")}, true},
		"one op too many":  {fencingtest.Puts(etcdfence.MaxMarkOps + 1), true},
		"largest possible": {fencingtest.Puts(etcdfence.MaxMarkOps), false},
	} {
		for range 2 { // without a mark, and with one
			_, err := m.Commit(t.Context(), name, claim(5), c.ops...)
			if c.bad != (err != nil) || c.bad && !errors.As(err, new(*holdfast.ArgumentError)) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestMarksOfOtherNamesAreNotCompared(t *testing.T) {
	e := newEtcd(t)
	m := e.marks(t, etcdfence.MarksOptions{})
	for i, name := range []string{"job", "a b", "100%", "\x00"} {
		resource := fmt.Sprint("r", i)
		if err := m.Admit(t.Context(), resource, fencing.Claim{Name: name, Token: 50}); err != nil {
			t.Fatal(err)
		}
		// Prefixes of the name, and what it could be confused with when escaped.
		for _, other := range []string{"jo", "job2", "job/2", "a", "a%20b", "100%25", "100", "%00", "\x00\x00", "Job"} {
			for _, token := range []holdfast.Token{1, 50, 99} {
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
	if got := e.values("k"); len(got) != 0 {
		t.Errorf("k was written: %v", got)
	}
}

func TestCommitThatArrivesAfterALargerTokenIsRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := newEtcd(t)
		m := e.marks(t, etcdfence.MarksOptions{})
		if err := write(t.Context(), m, claim(5)); err != nil {
			t.Fatal(err)
		}
		e.link.Plan(holdTxns)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- write(ctx, m, claim(5)) }() // ends with the receive below
		synctest.Wait()                                 // the Txn is on its way
		cancel()
		err := <-done
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) ||
			errors.Is(err, fencing.ErrStale) {
			t.Errorf("canceled: %v", err)
		}
		other, err := etcdfence.NewMarks(e.cli, etcdfence.MarksOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := write(t.Context(), other, claim(7)); err != nil {
			t.Fatal(err)
		}
		passTheHold()
		if got := fmt.Sprint(e.values("k")); got != "[5 7]" {
			t.Errorf("k was %s", got)
		}
	})
}

func TestUnansweredCommitIsNotSentAgain(t *testing.T) {
	e := newEtcd(t)
	m := e.marks(t, etcdfence.MarksOptions{})
	e.link.LoseReply("Txn", 1, codes.Unavailable)
	sent, total := e.rpcs(func() {
		if err := write(t.Context(), m, claim(5)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("error is %v", err)
		}
	})
	if total != 1 {
		t.Errorf("sent %v", sent)
	}
}

// Two holders increment a counter; the first one is paused between its read and its
// write. docs/fencing.md has the picture.
func TestReadComputeWrite(t *testing.T) {
	const paused, later = 5, 7
	for name, c := range map[string]struct {
		raise     bool // raise the mark before the read
		condition bool // write only if the value is still the one that was read
		want      string
	}{
		"the trap":           {want: "5 acknowledged, 7 acknowledged, counter 1"},
		"raise first":        {raise: true, want: "5 refused, 7 acknowledged, counter 1"},
		"condition on value": {condition: true, want: "5 acknowledged, 7 not applied, counter 1"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEtcd(t)
			m := e.marks(t, etcdfence.MarksOptions{})
			read := func(token int64) (n int, mod int64) {
				if c.raise {
					if err := m.Admit(t.Context(), "counter", claim(token)); err != nil {
						t.Fatal(err)
					}
				}
				if kvs := e.Keys("counter"); len(kvs) > 0 {
					n, _ = strconv.Atoi(string(kvs[0].Value))
					mod = kvs[0].ModRevision
				}
				return n, mod
			}
			write := func(token int64, n int, mod int64) string {
				op := clientv3.OpPut("counter", strconv.Itoa(n))
				if c.condition {
					unchanged := clientv3.Compare(clientv3.ModRevision("counter"), "=", mod)
					op = clientv3.OpTxn([]clientv3.Cmp{unchanged}, []clientv3.Op{op}, nil)
				}
				resp, err := m.Commit(t.Context(), "counter", claim(token), op)
				switch {
				case errors.Is(err, fencing.ErrStale):
					return fmt.Sprint(token, " refused")
				case err != nil:
					t.Fatal(err)
				case c.condition && !resp.Responses[0].GetResponseTxn().Succeeded:
					return fmt.Sprint(token, " not applied")
				}
				return fmt.Sprint(token, " acknowledged")
			}
			n5, mod5 := read(paused)
			n7, mod7 := read(later)
			first := write(paused, n5+1, mod5) // too late
			second := write(later, n7+1, mod7)
			got := fmt.Sprintf("%s, %s, counter %s", first, second, e.Keys("counter")[0].Value)
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// Raise the mark right after acquiring the lock, and then read what is to be changed:
// no write of an earlier holder comes after the read.
func ExampleMarks_Commit() {
	srv := etcdfake.New(etcdfake.Options{}) // your etcd; the lock may be in another one
	defer srv.Close()
	cli := srv.Link().Client()
	marks, err := etcdfence.NewMarks(cli, etcdfence.MarksOptions{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	read := func(c fencing.Claim) (n int, err error) {
		if err := marks.Admit(ctx, "counter", c); err != nil { // raises the mark
			return 0, err
		}
		resp, err := cli.Get(ctx, "counter")
		if err == nil && len(resp.Kvs) > 0 {
			n, err = strconv.Atoi(string(resp.Kvs[0].Value))
		}
		return n, err
	}
	write := func(c fencing.Claim, n int) {
		_, err := marks.Commit(ctx, "counter", c, clientv3.OpPut("counter", strconv.Itoa(n)))
		if errors.Is(err, fencing.ErrStale) {
			fmt.Println(c, "is refused")
			return
		}
		fmt.Println(c, "writes", n, err)
	}
	// fencing.Present returns the claim of a lock.
	first, next := fencing.Claim{Name: "counter", Token: 5}, fencing.Claim{Name: "counter", Token: 7}
	a, _ := read(first) // loses its lock here
	b, _ := read(next)
	write(first, a+1)
	write(next, b+1)
	// Output:
	// token 5 of "counter" is refused
	// token 7 of "counter" writes 1 <nil>
}

// Of a commit that was not sent, that etcd refused, and whose outcome is unknown.
func TestErrorOfCommitSaysWhatWasAsked(t *testing.T) {
	e := newEtcd(t)
	m := e.marks(t, etcdfence.MarksOptions{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, notSent := m.Commit(ended, "r", claim(5))
	e.link.LoseReply("Txn", 1, codes.Unavailable)
	_, unknown := m.Commit(t.Context(), "r", claim(5))
	e.link.Plan(func(etcdfake.Call) etcdfake.Fate {
		return etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
	})
	_, failed := m.Commit(t.Context(), "r", claim(5))
	for what, err := range map[string]error{"not sent": notSent, "unknown": unknown, "failed": failed} {
		if err == nil || !strings.HasPrefix(err.Error(), `etcdfence: commit "r" with token 5: `) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
