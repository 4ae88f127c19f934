package memfence_test

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
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/memfence"
	"github.com/holdfast-go/holdfast/internal/fence"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
)

func TestTokenBelowTheMarkIsRefused(t *testing.T) {
	s := memfence.New(memfence.Options{})
	for _, step := range []struct {
		token int64
		pass  bool
	}{{5, true}, {5, true}, {7, true}, {5, false}, {6, false}, {7, true}, {1<<48 | 1, true}, {1<<48 - 1, false}} {
		ran, err := do(t, s, "r", claim(step.token))
		if ran != step.pass || !ran && !errors.Is(err, fencing.ErrStale) {
			t.Errorf("token %d: ran %v, %v", step.token, ran, err)
		}
	}
	if ran, err := do(t, s, "other", claim(5)); !ran {
		t.Errorf("another resource has its own mark: %v", err)
	}
}

func TestRefusalSaysWhatAnOperatorMustDo(t *testing.T) {
	s := memfence.New(memfence.Options{})
	mark := newToken(t, 3, 900)
	do(t, s, "r", claim(int64(mark)))
	_, err := do(t, s, "r", claim(41))
	var below *fencing.MarkError
	if !errors.As(err, &below) || below.Mark != mark || below.Claim != claim(41) || below.Resource != "r" ||
		below.NeedsEpoch() != 4 {
		t.Fatalf("error is %#v", err)
	}
	mustSay(t, err, `"r"`, `"job"`, "token 41", mark.String(),
		"restored from a backup", "epoch to 4 or more", "BumpEpoch", "acquire again")
}

// Reset forgets a mark while another call waits for the resource: a third one must not get past that call.
func TestResourceThatIsResetIsKeptForTheCallThatWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := memfence.New(memfence.Options{})
		var calls sync.WaitGroup // joined below
		start := func(f func() error) {
			calls.Go(func() {
				if err := f(); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		resumeFirst, resumeSecond := make(chan struct{}), make(chan struct{})
		var inside atomic.Int32
		effect := func(resume <-chan struct{}) func(context.Context) error {
			return func(context.Context) error {
				if inside.Add(1) != 1 {
					t.Error("two effects at once")
				}
				<-resume
				inside.Add(-1)
				return nil
			}
		}
		start(func() error { return s.Do(t.Context(), "r", claim(5), effect(resumeFirst)) })
		start(func() error { return s.Reset(t.Context(), "r", &fencingtest.Journal{}) })
		start(func() error { return s.Do(t.Context(), "r", claim(6), effect(resumeSecond)) })
		close(resumeFirst)
		synctest.Wait()
		start(func() error { return s.Do(t.Context(), "r", claim(7), effect(resumeSecond)) })
		if inside.Load() != 1 {
			t.Errorf("%d effects", inside.Load())
		}
		close(resumeSecond)
		calls.Wait()
		if ran, err := do(t, s, "r", claim(6)); ran {
			t.Errorf("a token below the mark ran: %v", err)
		}
	})
}

func TestStoreHasRoomForAHundredThousandMarks(t *testing.T) {
	s := memfence.New(memfence.Options{})
	for i := range 100_001 {
		if err := s.Admit(t.Context(), strconv.Itoa(i), claim(5)); errors.Is(err, fencing.ErrFull) != (i == 100_000) {
			t.Fatalf("resource %d: %v", i, err)
		}
	}
}

func TestMalformedClaimIsRefused(t *testing.T) {
	s := memfence.New(memfence.Options{})
	for name, c := range map[string]struct {
		resource string
		claim    fencing.Claim
		noToken  bool
	}{
		"zero token":     {"r", claim(0), true},
		"negative token": {"r", claim(-1), true},
		"no name":        {"r", fencing.Claim{Token: 7}, false},
		"no resource":    {"", claim(7), false},
		"long resource":  {strings.Repeat("r", fencing.MaxResource+1), claim(7), false},
		"long name":      {"r", fencing.Claim{Name: strings.Repeat("n", fencing.MaxName+1), Token: 7}, false},
	} {
		ran, err := do(t, s, c.resource, c.claim)
		if ran || !errors.Is(err, fencing.ErrBadClaim) || errors.Is(err, holdfast.ErrNoToken) != c.noToken {
			t.Errorf("%s: ran %v, %v", name, ran, err)
		}
	}
	if n := s.Len(); n != 0 {
		t.Errorf("%d resources have a mark", n)
	}
}

func TestTokensOfAnotherLockAreNotCompared(t *testing.T) {
	s := memfence.New(memfence.Options{})
	do(t, s, "r", claim(5))
	for _, token := range []holdfast.Token{1, 5, 9} {
		ran, err := do(t, s, "r", fencing.Claim{Name: "other", Token: token})
		var other *fencing.OtherNameError
		if ran || !errors.Is(err, fencing.ErrOtherName) || errors.Is(err, fencing.ErrStale) {
			t.Errorf("token %v of another lock: ran %v, %v", token, ran, err)
		} else if !errors.As(err, &other) || other.Want != "job" || other.Got != "other" || other.Resource != "r" {
			t.Errorf("token %v of another lock: %#v", token, err)
		}
	}
	if ran, err := do(t, s, "r", claim(5)); !ran {
		t.Errorf("the mark has changed: %v", err)
	}
}

func TestMarkStaysWhenTheEffectFails(t *testing.T) {
	// In a bubble a resource that is never released is a deadlock, which fails the test.
	bubble.Test(t, func(t *testing.T) {
		s := memfence.New(memfence.Options{})
		failed := errors.New("failed")
		if err := s.Do(t.Context(), "r", claim(7), func(context.Context) error { return failed }); err != failed {
			t.Errorf("error is %v", err)
		}
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic was swallowed")
				}
			}()
			_ = s.Do(t.Context(), "r", claim(8), func(context.Context) error { panic("boom") })
		}()
		if ran, _ := do(t, s, "r", claim(7)); ran {
			t.Error("a token below the mark passed after a panic")
		}
		if ran, err := do(t, s, "r", claim(8)); !ran {
			t.Errorf("the resource was not released after a panic: %v", err)
		}
	})
}

// Token 5 pauses in its effect; 7 must wait for it. A second 5 that waits behind 7 is
// compared only when its turn comes.
func TestNewerHolderWaitsForTheEffectOfAnOlderOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := memfence.New(memfence.Options{})
		var order []holdfast.Token // each effect has the resource to itself
		errs := make(map[string]error)
		paused := make(chan struct{})
		var mu sync.Mutex
		var wg sync.WaitGroup
		start := func(name string, token int64, wait <-chan struct{}) {
			wg.Go(func() {
				err := s.Do(t.Context(), "r", claim(token), func(context.Context) error {
					if wait != nil {
						<-wait
					}
					order = append(order, holdfast.Token(token))
					return nil
				})
				mu.Lock()
				defer mu.Unlock()
				errs[name] = err
			})
			synctest.Wait() // it waits or has ended
		}
		start("5, paused", 5, paused)
		start("7", 7, nil)
		start("5, late", 5, nil)
		if len(order) != 0 {
			t.Errorf("%v ran during the effect of 5", order)
		}
		close(paused)
		wg.Wait()
		if fmt.Sprint(order) != "[5 7]" || errs["5, paused"] != nil || errs["7"] != nil ||
			!errors.Is(errs["5, late"], fencing.ErrStale) {
			t.Errorf("effects %v, errors %v", order, errs)
		}
	})
}

func TestWaiterThatGivesUpLeavesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := memfence.New(memfence.Options{MaxMarks: 1})
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		err := s.Do(t.Context(), "r", claim(5), func(context.Context) error {
			done := make(chan error)
			go func() { done <- s.Admit(ctx, "r", claim(7)) }() // ends with the receive below
			synctest.Wait()
			cancel(enough)
			return <-done
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, enough) {
			t.Errorf("the waiter's error is %v", err)
		}
		if ran, err := do(t, s, "r", claim(5)); !ran {
			t.Errorf("a waiter that gave up has raised the mark: %v", err)
		}
		if err := s.Admit(ctx, "r", claim(9)); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

func TestFullStoreRefusesNewResourcesAndKeepsItsMarks(t *testing.T) {
	s := memfence.New(memfence.Options{MaxMarks: 2})
	do(t, s, "a", claim(5))
	do(t, s, "b", claim(5))
	for range 3 {
		if ran, err := do(t, s, "c", claim(9)); ran || !errors.Is(err, fencing.ErrFull) {
			t.Errorf("third of two: ran %v, %v", ran, err)
		}
		for _, known := range []string{"a", "b"} {
			if ran, _ := do(t, s, known, claim(4)); ran {
				t.Errorf("the mark of %s was forgotten to make room", known)
			}
			if ran, err := do(t, s, known, claim(5)); !ran {
				t.Errorf("%s: %v", known, err)
			}
		}
	}
	for range 2 {
		if err := s.Reset(t.Context(), "a", &fencingtest.Journal{}); err != nil {
			t.Fatal(err)
		}
	}
	if ran, err := do(t, s, "c", claim(1)); !ran || s.Len() != 2 {
		t.Errorf("after Reset: ran %v, %v, %d resources", ran, err, s.Len())
	}
}

// 16 writers, half of them often with a stale token. The effects record what landed.
func TestNoStaleEffectLandsAmongManyWriters(t *testing.T) {
	const writers, resources, rounds = 16, 3, 200
	s := memfence.New(memfence.Options{MaxMarks: resources})
	type record struct {
		inside atomic.Int32
		tokens []holdfast.Token
	}
	var records [resources]record
	var newest atomic.Int64
	newest.Store(1)
	var refused atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range rounds {
				token := newest.Load()
				if w%2 == 0 {
					token = newest.Add(1)
				} else {
					token = max(1, token-rand.Int64N(4))
				}
				i := rand.IntN(resources)
				err := s.Do(t.Context(), fmt.Sprint("r", i), claim(token), func(context.Context) error {
					if records[i].inside.Add(1) != 1 {
						t.Error("two effects on one resource at once")
					}
					records[i].tokens = append(records[i].tokens, holdfast.Token(token)) // -race sees what overlaps
					records[i].inside.Add(-1)
					return nil
				})
				if errors.Is(err, fencing.ErrStale) {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	landed := 0
	for i := range records {
		landed += len(records[i].tokens)
		for j, token := range records[i].tokens {
			if j > 0 && token < records[i].tokens[j-1] {
				t.Fatalf("resource %d: %v landed after %v", i, token, records[i].tokens[j-1])
			}
		}
	}
	if landed == 0 || refused.Load() == 0 || landed+int(refused.Load()) != writers*rounds {
		t.Errorf("%d landed, %d refused of %d", landed, refused.Load(), writers*rounds)
	}
}

func TestUnlimitedStoreIsNeverFull(t *testing.T) {
	s := memfence.New(memfence.Options{MaxMarks: -1})
	for _, resource := range []string{"a", "b", "c"} {
		if ran, err := do(t, s, resource, claim(5)); !ran {
			t.Errorf("%s: %v", resource, err)
		}
	}
}

func TestErrorsOfAStoreTellWhetherTheWorkWasDone(t *testing.T) {
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	effect := func(context.Context) error { return nil }
	full := memfence.New(memfence.Options{MaxMarks: 1})
	if _, err := do(t, full, "r", claim(5)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		do   func() error
		want fence.Verdict
	}{
		"full":          {func() error { return full.Do(ctx, "other", claim(5), effect) }, fence.NothingDone},
		"context ended": {func() error { return full.Do(ended, "r", claim(5), effect) }, fence.NothingDone},
		"effect's own error": {func() error {
			return full.Do(ctx, "r", claim(5), func(context.Context) error { return context.Canceled })
		}, fence.OutcomeUnknown},
	} {
		if err := c.do(); fence.VerdictOf(err) != c.want {
			t.Errorf("%s: %v of %v, want %v", name, fence.VerdictOf(err), err, c.want)
		}
	}
}

func ExampleStore() {
	store := memfence.New(memfence.Options{MaxMarks: 1000})
	ctx := context.Background()
	write := func(token holdfast.Token) {
		c := fencing.Claim{Name: "billing/job-7", Token: token}
		err := store.Do(ctx, "ledger.csv", c, func(context.Context) error {
			fmt.Println("token", token, "writes")
			return nil
		})
		if errors.Is(err, fencing.ErrStale) {
			fmt.Println("token", token, "is refused")
		}
	}
	write(5)
	write(7) // the next holder
	write(5) // the previous holder, late
	// Output:
	// token 5 writes
	// token 7 writes
	// token 5 is refused
}
