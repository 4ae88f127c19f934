package etcdfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

func TestAdmitReadsAlwaysAndWritesForANewHolder(t *testing.T) {
	e := newEtcd(t)
	m := e.marks(t, etcdfence.MarksOptions{})
	for _, step := range []struct {
		token       int64
		pass        bool
		reads, txns int
	}{{9, true, 1, 1}, {9, true, 1, 0}, {10, true, 1, 1}, {9, false, 1, 0}} {
		sent, total := e.rpcs(func() {
			err := m.Admit(t.Context(), "r", claim(step.token))
			if step.pass != (err == nil) || !step.pass && !errors.Is(err, fencing.ErrStale) {
				t.Errorf("token %d: %v", step.token, err)
			}
		})
		if sent["Range"] != step.reads || sent["Txn"] != step.txns || total != step.reads+step.txns {
			t.Errorf("token %d: sent %v", step.token, sent)
		}
	}
	// Commit uses the same mark.
	if err := write(t.Context(), m, claim(9)); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("a token below the admitted one commits: %v", err)
	}
}

func TestAdmitWhoseReplyIsLostAdmits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := newEtcd(t)
		m := e.marks(t, etcdfence.MarksOptions{})
		e.link.LoseReply("Txn", 1, codes.Unavailable)
		if err := m.Admit(t.Context(), "r", claim(5)); err != nil {
			t.Error(err)
		}
		if mark, _ := m.Mark(t.Context(), "r"); mark != claim(5) {
			t.Errorf("mark is %v", mark)
		}
	})
}

func TestAdmitThatArrivesLateDoesNotLowerTheMark(t *testing.T) {
	arrivesLate(t, func(*etcdfence.Marks) {}, func(ctx context.Context, m *etcdfence.Marks) error {
		return m.Admit(ctx, "r", claim(5))
	})
}

// arrivesLate checks that a mark of 7 is kept when the Txn of an earlier call arrives, whose caller has given up.
func arrivesLate(
	t *testing.T, prepare func(m *etcdfence.Marks), call func(ctx context.Context, m *etcdfence.Marks) error,
) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		e := newEtcd(t)
		m := e.marks(t, etcdfence.MarksOptions{})
		prepare(m)
		other, err := etcdfence.NewMarks(e.cli, etcdfence.MarksOptions{})
		if err != nil {
			t.Fatal(err)
		}
		e.link.Plan(holdTxns)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- call(ctx, m) }() // ends with the receive below
		synctest.Wait()                      // the Txn is on its way
		cancel()
		if err := <-done; err == nil {
			t.Error("done without an answer")
		}
		if err := other.Admit(t.Context(), "r", claim(7)); err != nil {
			t.Fatal(err)
		}
		passTheHold()
		if mark, _ := other.Mark(t.Context(), "r"); mark != claim(7) {
			t.Errorf("mark is %v", mark)
		}
	})
}

// The mark is raised between the read of Admit and its write.
func TestAdmitWhoseMarkIsRaisedMeanwhileIsJudgedAgain(t *testing.T) {
	for raised, want := range map[int64]error{7: fencing.ErrStale, 4: nil} {
		bubble.Test(t, func(t *testing.T) {
			e := newEtcd(t)
			m := e.marks(t, etcdfence.MarksOptions{})
			if err := m.Admit(t.Context(), "r", claim(3)); err != nil {
				t.Fatal(err)
			}
			other, err := etcdfence.NewMarks(e.cli, etcdfence.MarksOptions{})
			if err != nil {
				t.Fatal(err)
			}
			e.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
				if c.Method == "Txn" {
					return etcdfake.Fate{Request: time.Second}
				}
				return etcdfake.Fate{}
			})
			done := make(chan error)
			go func() { done <- m.Admit(t.Context(), "r", claim(5)) }() // ends with the receive below
			synctest.Wait()                                             // the Txn is on its way
			if err := other.Admit(t.Context(), "r", claim(raised)); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("the mark became %d, and 5 is admitted: %v", raised, err)
			}
			if mark, err := other.Mark(t.Context(), "r"); err != nil || mark != claim(max(raised, 5)) {
				t.Errorf("mark is %v, %v", mark, err)
			}
		})
	}
}

// A mark that was set after Reset began is kept: its token may have been admitted since.
func TestResetThatArrivesLateKeepsAMarkThatWasSetMeanwhile(t *testing.T) {
	admit := func(m *etcdfence.Marks) {
		if err := m.Admit(context.Background(), "r", claim(5)); err != nil {
			t.Error(err)
		}
	}
	arrivesLate(t, admit, func(ctx context.Context, m *etcdfence.Marks) error { return m.Reset(ctx, "r", &journal{}) })
}

// The deletion was carried out and not answered. It is sent again after another process has set a mark.
func TestRepeatedResetKeepsAMarkThatWasSetMeanwhile(t *testing.T) {
	resetMeanwhile(t, etcdfake.Fate{LoseReply: true, Silent: true}, func(err error, j *journal) {
		records := j.Take()
		if err != nil || len(records) != 1 || records[0].Mark != 5 || records[0].Err != nil {
			t.Errorf("Reset: %v, recorded %+v", err, records)
		}
	})
}

// The mark is raised on the way of the deletion, so the deletion does nothing, and Reset says so.
func TestResetOfAMarkThatIsRaisedMeanwhileIsAnError(t *testing.T) {
	resetMeanwhile(t, etcdfake.Fate{Request: 2 * time.Second}, func(err error, j *journal) {
		if err == nil || !strings.Contains(err.Error(), "another process changed the mark") || len(j.Take()) != 0 {
			t.Errorf("Reset: %v", err)
		}
	})
}

// resetMeanwhile resets a mark of token 5. A second after the deletion was sent, which has that fate, another process
// admits token 7, whose mark must be kept.
func resetMeanwhile(t *testing.T, fate etcdfake.Fate, check func(err error, j *journal)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		e := newEtcd(t)
		m := e.marks(t, etcdfence.MarksOptions{})
		if err := m.Admit(t.Context(), "r", claim(5)); err != nil {
			t.Fatal(err)
		}
		other, err := etcdfence.NewMarks(e.cli, etcdfence.MarksOptions{})
		if err != nil {
			t.Fatal(err)
		}
		txns := 0 // counted by the link only, which calls under a mutex of its own
		e.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if c.Method == "Txn" {
				if txns++; txns == 1 {
					return fate
				}
			}
			return etcdfake.Fate{}
		})
		j, done := &journal{}, make(chan error)
		go func() { done <- m.Reset(t.Context(), "r", j) }() // ends with the receive below
		time.Sleep(time.Second)
		if err := other.Admit(t.Context(), "r", claim(7)); err != nil {
			t.Fatal(err)
		}
		check(<-done, j)
		if mark, _ := other.Mark(t.Context(), "r"); mark != claim(7) {
			t.Errorf("mark is %v", mark)
		}
	})
}

func TestNothingIsAdmittedWhileEtcdIsUnreachable(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := newEtcd(t)
		m := e.marks(t, etcdfence.MarksOptions{})
		e.link.Cut()
		start := time.Now()
		err := m.Admit(context.Background(), "r", claim(5))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fencing.ErrStale) {
			t.Errorf("error is %v", err)
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("returned after %v, want the default timeout", d)
		}
	})
}

func TestMarkThatCannotBeParsedRefusesEveryToken(t *testing.T) {
	e := newEtcd(t)
	m := e.marks(t, etcdfence.MarksOptions{})
	for _, value := range []string{
		"", "7", "job", "job 7", "job 000000000000000000x", "job 0000000000000000000", "job  000000000000000007",
		"j%6Fb 0000000000000000007", " 0000000000000000007", "job 00000000000000000007", "job 9999999999999999999",
	} {
		e.put(t, "holdfast/mark/r", value)
		if err := m.Admit(t.Context(), "r", claim(1<<62)); err == nil {
			t.Errorf("mark %q: admitted", value)
		}
		if err := write(t.Context(), m, claim(1)); err == nil {
			t.Errorf("mark %q: token 1 committed", value)
		}
	}
	if got := e.values("k"); len(got) != 0 {
		t.Errorf("k was written: %v", got)
	}
}

func TestInvalidMarksOptionsAreErrors(t *testing.T) {
	cli := clientv3.NewCtxClient(context.Background())
	for name, o := range map[string]etcdfence.MarksOptions{
		"slash":            {Namespace: "a/b"},
		"reserved":         {Namespace: "@a"},
		"long":             {Namespace: strings.Repeat("a", 65)},
		"negative timeout": {Timeout: -1},
		"retry":            {Retry: backoff.Policy{Initial: -1}},
	} {
		if m, err := etcdfence.NewMarks(cli, o); m != nil || err == nil {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	if m, err := etcdfence.NewMarks(nil, etcdfence.MarksOptions{}); m != nil || !isArgument(err, "kv") {
		t.Errorf("without a client: %v, %v", m, err)
	}
}

// From 5 s on an etcd server may answer so that its client sends a write twice.
func TestAttemptsEndWithin5s(t *testing.T) {
	seen := &deadlines{}
	m, err := etcdfence.NewMarks(seen, etcdfence.MarksOptions{Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(context.Context) error{
		"bump": func(ctx context.Context) error {
			_, err := etcdfence.BumpEpoch(ctx, seen, "", 1, &journal{})
			return err
		},
		"admit": func(ctx context.Context) error { return m.Admit(ctx, "r", claim(5)) },
		"reset": func(ctx context.Context) error { return m.Reset(ctx, "r", &journal{}) },
	} {
		seen.left = 0
		if err := call(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if seen.left <= 0 || seen.left >= 5*time.Second {
			t.Errorf("%s: an attempt may take %v", name, seen.left)
		}
	}
}

// deadlines is a KV that fails, and notes how long its last request could have taken.
type deadlines struct {
	clientv3.KV
	left time.Duration
}

func (d *deadlines) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if end, ok := ctx.Deadline(); ok {
		d.left = time.Until(end)
	}
	return nil, retry.Final(errors.New("no"))
}
