package modelsearch

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A counter goes from 0 to 3, one by one; what each test changes leads astray.
func counter() Model[int] {
	return Model[int]{
		Steps: func(n *int) []Step[int] {
			if *n >= 3 {
				return nil
			}
			return []Step[int]{{State: *n + 1, What: "adds one"}}
		},
		Check:    func(*int) string { return "" },
		Finished: func(n *int) bool { return *n == 3 },
		Max:      10,
	}
}

// more adds a step from one number to another.
func more(m Model[int], from int, step Step[int]) Model[int] {
	steps := m.Steps
	m.Steps = func(n *int) []Step[int] {
		if *n == from {
			return append(steps(n), step)
		}
		return steps(n)
	}
	return m
}

// unaided must reach its end without the choice that leads there.
func unaided() Model[int] {
	m := more(counter(), 7, Step[int]{State: 3, What: "is helped", Choice: true})
	m = more(m, 1, Step[int]{State: 7, What: "falls", Choice: true})
	m.Unaided = true
	return m
}

func TestSearchVisitsAllStates(t *testing.T) {
	if r := counter().Search(); r != (Result{States: 4, Steps: 3}) {
		t.Errorf("%+v", r)
	}
}

func TestWhatIsWrongIsToldWithTheStepsToIt(t *testing.T) {
	bad := counter()
	bad.Check = func(n *int) string {
		if *n == 2 {
			return "two"
		}
		return ""
	}
	const wrongStep = "wrong\n\t0 adds one\n\t0 errs"
	quiet := counter()
	quiet.Quiet = func(n *int) string { return "quiet" }
	for name, c := range map[string]struct {
		m    Model[int]
		want string
	}{
		"a state":                   {bad, "two\n\t0 adds one\n\t0 adds one"},
		"a step":                    {more(counter(), 1, Step[int]{State: 2, What: "errs", Wrong: "wrong"}), wrongStep},
		"a state without a way out": {more(counter(), 1, Step[int]{State: 7, What: "falls"}), "stuck: "},
		"a state without a way out but by a choice": {unaided(), "stuck: "},
		"a cycle": {more(counter(), 2, Step[int]{State: 1, What: "back", Again: true}), "livelock: "},
		"a state in which nothing happens by itself": {quiet, "quiet\n\t0 adds one\n\t0 adds one\n\t0 adds one"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := c.m.Search(); !strings.HasPrefix(r.Wrong, c.want) {
				t.Errorf("found %q, want %q", r.Wrong, c.want)
			}
		})
	}
}

func TestAStepBackIsNoLivelockUnlessItIsMarked(t *testing.T) {
	if r := more(counter(), 2, Step[int]{State: 1, What: "goes back"}).Search(); r.Wrong != "" {
		t.Error(r.Wrong)
	}
}
