package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
)

func token(t *testing.T, epoch, revision int64) fencing.Token {
	t.Helper()
	tok, err := fencing.NewToken(epoch, revision)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// A resource whose mark is a token that no lock can reach is shut for good.
func TestTokenFarAheadOfTheMarkIsRefusedBeforeItIsMarked(t *testing.T) {
	m := newMarks(t, nil)
	memory := fencing.NewMemoryStore(nil)
	for name, write := range map[string]func(resource string, c fencing.Claim) error{
		"memory": func(resource string, c fencing.Claim) error { _, err := do(t, memory, resource, c); return err },
		"commit": func(resource string, c fencing.Claim) error {
			_, err := m.Commit(t.Context(), resource, c, clientv3.OpPut("k", "v"))
			return err
		},
		"admit": func(resource string, c fencing.Claim) error { return m.Admit(t.Context(), "admit/"+resource, c) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := write("first", claim(1)); err != nil { // marks may be made without a count from now on
				t.Fatal(err)
			}
			far := claim(int64(token(t, fencing.MaxEpochStep+1, 1)))
			for resource, first := range map[string]int64{"new": 0, "marked": 5} {
				if first > 0 {
					if err := write(resource, claim(first)); err != nil {
						t.Fatal(err)
					}
				}
				for _, c := range []fencing.Claim{far, claim(math.MaxInt64)} {
					if err := write(resource, c); !errors.Is(err, fencing.ErrEpochStep) || !errors.Is(err, fencing.ErrBadClaim) {
						t.Errorf("%v on %s: %v", c, resource, err)
					}
				}
				if err := write(resource, claim(7)); err != nil {
					t.Errorf("%s is shut: %v", resource, err)
				}
			}
			// A step is measured from the mark, and may be taken in full.
			for _, epoch := range []int64{fencing.MaxEpochStep, 2 * fencing.MaxEpochStep} {
				if err := write("steps", claim(int64(token(t, epoch, 1)))); err != nil {
					t.Errorf("epoch %d: %v", epoch, err)
				}
			}
			if err := write("steps", claim(math.MaxInt64)); !errors.Is(err, fencing.ErrEpochStep) {
				t.Errorf("the last epoch: %v", err)
			}
			// The name is looked at first: tokens of two locks are not compared.
			if err := write("steps", fencing.Claim{Name: "other", Token: math.MaxInt64}); !errors.Is(err, fencing.ErrOtherName) {
				t.Errorf("a huge token of another lock: %v", err)
			}
		})
	}
}

func TestBumpRefusesAStepThatGuardsWouldRefuse(t *testing.T) {
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	bump := func(atLeast int64) error {
		_, err := fencing.BumpEpoch(t.Context(), link.Client(), "", atLeast, &journal{})
		return err
	}
	for _, step := range []struct {
		atLeast int64
		refused bool
	}{{fencing.MaxEpochStep + 1, true}, {3, false}, {fencing.MaxEpochStep + 4, true}, {fencing.MaxEpochStep + 3, false}} {
		before := link.Count()
		err := bump(step.atLeast)
		if step.refused != errors.Is(err, fencing.ErrEpochStep) || step.refused != errors.As(err, new(*fencing.EpochError)) || !step.refused && err != nil {
			t.Errorf("to %d: %v", step.atLeast, err)
		}
		if n := link.Count().Since(before); step.refused && n["Txn"] != 0 {
			t.Errorf("to %d: sent %v", step.atLeast, n)
		}
	}
	if epoch, err := fencing.Epoch(t.Context(), link.Client(), ""); epoch != fencing.MaxEpochStep+3 || err != nil {
		t.Errorf("the epoch is %d, %v", epoch, err)
	}
}

func TestRefusalNamesBothLocks(t *testing.T) {
	c := fencing.Claim{Token: 5}
	err := c.CheckMark("r", fencing.Claim{Name: "b", Token: 9})
	var below *fencing.MarkError
	if !errors.As(err, &below) || below.MarkName != "b" {
		t.Fatalf("%#v", err)
	}
	mustSay(t, err, `"b"`, "a lock that was not named")
	err = fencing.Claim{Name: "a", Token: 5}.CheckMark("r", fencing.Claim{Name: "b", Token: 9})
	if !errors.Is(err, fencing.ErrOtherName) || errors.Is(err, fencing.ErrStale) {
		t.Errorf("%v", err)
	}
	mustSay(t, err, `"a"`, `"b"`)
	for _, pass := range []struct{ c, mark fencing.Claim }{
		{c, fencing.Claim{}}, {c, fencing.Claim{Token: 5}}, {c, fencing.Claim{Name: "b", Token: 5}},
		{fencing.Claim{Name: "a", Token: 5}, fencing.Claim{Token: 4}},
	} {
		if err := pass.c.CheckMark("r", pass.mark); err != nil {
			t.Errorf("%v over %v: %v", pass.c, pass.mark, err)
		}
	}
}

// A resetter is what every store is.
type resetter interface {
	Reset(ctx context.Context, resource string, a audit.Auditor) error
}

func TestResetOpensAResourceAndIsRecorded(t *testing.T) {
	m := newMarks(t, nil)
	memory := fencing.NewMemoryStore(nil)
	for name, s := range map[string]interface {
		resetter
		fencing.Filter
	}{"memory": memory, "etcd": m} {
		t.Run(name, func(t *testing.T) {
			ctx, a := t.Context(), &journal{}
			high, low := fencing.Claim{Name: "old", Token: token(t, 1000, 1)}, claim(7)
			if err := s.Admit(ctx, "r", high); err != nil {
				t.Fatal(err)
			}
			if err := s.Admit(ctx, "r", low); !errors.Is(err, fencing.ErrOtherName) {
				t.Fatal(err)
			}
			for range 2 { // the second finds nothing, and records nothing
				if err := s.Reset(ctx, "r", a); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Admit(ctx, "r", low); err != nil {
				t.Errorf("after the reset: %v", err)
			}
			records := a.all()
			if len(records) != 1 {
				t.Fatalf("records: %+v", records)
			}
			r := records[0]
			if r.Event != audit.Reset || r.Resource != "r" || r.Name != "old" || r.Mark != high.Token || r.Holder == "" || r.At.IsZero() {
				t.Errorf("record: %+v", r)
			}
			if err := s.Reset(ctx, "", a); !errors.Is(err, fencing.ErrBadClaim) {
				t.Errorf("no resource: %v", err)
			}
		})
	}
}

// What the error of a refusal tells an operator to do must be possible.
func TestAdviceInARefusalCanBeFollowed(t *testing.T) {
	for _, epoch := range []int64{0, 3, fencing.MaxEpochStep - 1, fencing.MaxEpochStep, fencing.MaxEpoch} {
		err := claim(7).CheckMark("r", claim(int64(token(t, epoch, 9))))
		if epoch < fencing.MaxEpochStep {
			mustSay(t, err, "BumpEpoch", fmt.Sprintf("to %d or more", epoch+1))
		} else {
			mustSay(t, err, "Reset")
		}
		if n := len(err.Error()); n > 300 {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
