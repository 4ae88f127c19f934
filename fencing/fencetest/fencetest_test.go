package fencetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/memfence"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// toy is a storage with a guard, which may be wrong.
type toy struct {
	turn  chan struct{} // held by what uses the fields below
	marks map[string]fencing.Claim
	data  map[string]string

	lax       bool // does not validate
	filter    bool // compares, and lets go before the effect
	check     func(resource string, c, mark fencing.Claim) error
	resource  func(string) string
	keep      bool                  // the mark is not raised
	failed    bool                  // writes although the effect failed
	lose      bool                  // the next reply
	lost      error                 // what a lost reply is told as
	ownMarks  bool                  // the other process has marks of its own
	canceled  func(err error) error // what a canceled write is told as
	forgotten bool                  // acknowledges every tenth write without doing it
	n         int
}

func newToy() *toy {
	return &toy{
		turn: make(chan struct{}, 1), marks: make(map[string]fencing.Claim), data: make(map[string]string),
		check:    func(resource string, c, mark fencing.Claim) error { return c.CheckMark(resource, mark) },
		resource: func(r string) string { return r },
		lost:     holdfast.ErrOutcomeUnknown,
	}
}

func (y *toy) guard() Guard {
	return Guard{
		Write: func(ctx context.Context, resource string, c fencing.Claim, data string, between func() error) error {
			return y.write(ctx, resource, resource, c, data, between)
		},
		Other: func(ctx context.Context, resource string, c fencing.Claim, data string, between func() error) error {
			mark := resource
			if y.ownMarks {
				mark += " of the other process"
			}
			return y.write(ctx, resource, mark, c, data, between)
		},
		Read: func(_ context.Context, resource string) (string, error) {
			y.turn <- struct{}{}
			defer func() { <-y.turn }()
			return y.data[y.resource(resource)], nil
		},
		LoseReply: func() { y.lose = true },
	}
}

func (y *toy) write(
	ctx context.Context, resource, mark string, c fencing.Claim, data string, between func() error,
) error {
	if err := ctx.Err(); err != nil {
		return fencing.NotDone(err)
	}
	y.turn <- struct{}{}
	defer func() { <-y.turn }()
	resource, mark = y.resource(resource), y.resource(mark)
	err := c.Validate()
	if err == nil || y.lax {
		err = y.check(resource, c, y.marks[mark])
	}
	if err != nil {
		return err
	}
	if !y.keep {
		y.marks[mark] = c
	}
	if y.filter {
		<-y.turn
	}
	err = between()
	if y.filter {
		y.turn <- struct{}{}
	}
	if err != nil && !y.failed {
		return err
	}
	if y.n++; !y.forgotten || y.n%10 != 0 {
		y.data[resource] = data
	}
	if ctx.Err() != nil && y.canceled != nil {
		return y.canceled(ctx.Err())
	}
	if y.lose {
		y.lose = false
		return y.lost
	}
	return err
}

// failing returns the names of the checks that a guard fails, and of those that were skipped.
func failing(t *testing.T, g Guard) (failed, skipped []string) {
	for _, c := range checks {
		tr := newTrial(t.Context(), g)
		if c.run(tr); tr.skipped != "" {
			skipped = append(skipped, c.name)
		} else if len(tr.errs) > 0 {
			failed = append(failed, c.name)
			t.Logf("%s: %v", c.name, tr.errs[0])
		}
	}
	return failed, skipped
}

func TestEachWrongGuardIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		wrong func(y *toy)
		want  string // a check that finds it
	}{
		"compares texts": {func(y *toy) {
			y.check = func(_ string, c, mark fencing.Claim) error {
				if mark.Token != 0 && c.Token.String() < mark.Token.String() {
					return fencing.ErrStale
				}
				return nil
			}
		}, "older tokens are refused"},
		"refuses equal tokens": {func(y *toy) {
			y.check = func(resource string, c, mark fencing.Claim) error {
				if c.Token == mark.Token {
					return fencing.ErrStale
				}
				return c.CheckMark(resource, mark)
			}
		}, "older tokens are refused"},
		"says another error": {func(y *toy) {
			y.check = func(resource string, c, mark fencing.Claim) error {
				if err := c.CheckMark(resource, mark); err != nil {
					return errors.New("no")
				}
				return nil
			}
		}, "older tokens are refused"},
		"each process has its marks": {func(y *toy) { y.ownMarks = true }, "older tokens are refused"},
		"raises no mark":             {func(y *toy) { y.keep = true }, "older tokens are refused"},
		"compares doubles": {func(y *toy) {
			y.check = func(resource string, c, mark fencing.Claim) error {
				if float64(c.Token) >= float64(mark.Token) {
					return nil
				}
				return c.CheckMark(resource, mark)
			}
		}, "large tokens are compared exactly"},
		"does not validate": {func(y *toy) { y.lax = true }, "malformed claims are refused"},
		"takes any epoch": {func(y *toy) {
			y.check = func(resource string, c, mark fencing.Claim) error {
				if err := c.CheckMark(resource, mark); !errors.Is(err, fencing.ErrEpochStep) {
					return err
				}
				return nil
			}
		}, "a token far ahead is refused"},
		"looks at no name": {func(y *toy) {
			y.check = func(resource string, c, mark fencing.Claim) error {
				c.Name = mark.Name
				return c.CheckMark(resource, mark)
			}
		}, "locks are told apart"},
		"takes upper for lower case": {func(y *toy) { y.resource = strings.ToUpper }, "resources are told apart"},
		"drops spaces":               {func(y *toy) { y.resource = strings.TrimSpace }, "resources are told apart"},
		"writes what has failed":     {func(y *toy) { y.failed = true }, "a write that fails has no effect"},
		"promises what it does not know": {func(y *toy) {
			y.canceled = fencing.NotDone
		}, "a canceled write is told rightly"},
		"is a filter": {func(y *toy) { y.filter = true }, "a paused writer is not overtaken, or is refused"},
		"takes a loss for nothing": {func(y *toy) {
			y.lost = fencing.NotDone(errors.New("broken pipe"))
		}, "a lost reply is an unknown outcome"},
		"forgets": {func(y *toy) { y.forgotten = true }, "many writers"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				y := newToy()
				c.wrong(y)
				if failed, _ := failing(t, y.guard()); !slices.Contains(failed, c.want) {
					t.Errorf("it fails only %q", failed)
				}
			})
		})
	}
}

func TestRightGuardPassesEachCheck(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		if failed, skipped := failing(t, newToy().guard()); len(failed)+len(skipped) > 0 {
			t.Errorf("it fails %q, skipped are %q", failed, skipped)
		}
	})
}

func TestStoreInMemoryPasses(t *testing.T) {
	store := memfence.New(memfence.Options{})
	var mu sync.Mutex // protects data
	data := make(map[string]string)
	Test(t, Guard{
		Write: func(ctx context.Context, resource string, c fencing.Claim, text string, between func() error) error {
			return store.Do(ctx, resource, c, func(context.Context) error {
				if err := between(); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				data[resource] = text
				return nil
			})
		},
		Read: func(_ context.Context, resource string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return data[resource], nil
		},
	})
}
