package fencing_test

import (
	"context"
	"errors"
	"math"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/memfence"
)

// A mark that no lock can reach would lock the resource for good.
func TestTokenFarAheadOfTheMarkIsRefusedBeforeItIsMarked(t *testing.T) {
	m := marks(t)
	memory := memfence.New(memfence.Options{})
	for name, write := range map[string]func(resource string, c fencing.Claim) error{
		"memory": func(resource string, c fencing.Claim) error {
			_, err := do(t, memory, resource, c)
			return err
		},
		"commit": func(resource string, c fencing.Claim) error {
			_, err := m.Commit(t.Context(), resource, c, clientv3.OpPut("k", "v"))
			return err
		},
		"admit": func(resource string, c fencing.Claim) error { return m.Admit(t.Context(), "admit/"+resource, c) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := write("first", claim(1)); err != nil { // from now on marks are created without a count
				t.Fatal(err)
			}
			far := claim(int64(newToken(t, fencing.MaxEpochStep+1, 1)))
			for resource, first := range map[string]int64{"new": 0, "marked": 5} {
				if first > 0 {
					if err := write(resource, claim(first)); err != nil {
						t.Fatal(err)
					}
				}
				for _, c := range []fencing.Claim{far, claim(math.MaxInt64)} {
					err := write(resource, c)
					if !errors.Is(err, fencing.ErrEpochStep) || !errors.Is(err, fencing.ErrBadClaim) {
						t.Errorf("%v on %s: %v", c, resource, err)
					}
				}
				if err := write(resource, claim(7)); err != nil {
					t.Errorf("%s is locked: %v", resource, err)
				}
			}
			// The step is measured from the mark.
			for _, epoch := range []int64{fencing.MaxEpochStep, 2 * fencing.MaxEpochStep} {
				if err := write("steps", claim(int64(newToken(t, epoch, 1)))); err != nil {
					t.Errorf("epoch %d: %v", epoch, err)
				}
			}
			if err := write("steps", claim(math.MaxInt64)); !errors.Is(err, fencing.ErrEpochStep) {
				t.Errorf("the largest epoch: %v", err)
			}
			// Names are compared first.
			other := fencing.Claim{Name: "other", Token: math.MaxInt64}
			if err := write("steps", other); !errors.Is(err, fencing.ErrOtherName) {
				t.Errorf("a large token of another lock: %v", err)
			}
		})
	}
}

func TestResetAdmitsAnyTokenAndIsRecorded(t *testing.T) {
	for name, s := range map[string]interface {
		fencing.Filter
		Reset(ctx context.Context, resource string, a audit.Auditor) error
	}{"memory": memfence.New(memfence.Options{}), "etcd": marks(t)} {
		t.Run(name, func(t *testing.T) {
			ctx, a := t.Context(), &journal{}
			high, low := fencing.Claim{Name: "old", Token: newToken(t, 1000, 1)}, claim(7)
			if err := s.Admit(ctx, "r", high); err != nil {
				t.Fatal(err)
			}
			if err := s.Admit(ctx, "r", low); !errors.Is(err, fencing.ErrOtherName) {
				t.Fatal(err)
			}
			for range 2 { // the second finds no mark, and records nothing
				if err := s.Reset(ctx, "r", a); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Admit(ctx, "r", low); err != nil {
				t.Errorf("after the reset: %v", err)
			}
			records := a.Take()
			if len(records) != 1 {
				t.Fatalf("records %+v", records)
			}
			r := records[0]
			if r.Event != audit.Reset || r.Resource != "r" || r.Name != "old" || r.Mark != high.Token ||
				r.Holder == "" || r.At.IsZero() {
				t.Errorf("record %+v", r)
			}
			if err := s.Reset(ctx, "", a); !errors.Is(err, fencing.ErrBadClaim) {
				t.Errorf("no resource: %v", err)
			}
		})
	}
}
