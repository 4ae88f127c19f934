package queue

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// steps are what a session has told of its entries: see lease.Observe.
type steps struct {
	mu  sync.Mutex
	all []lease.Step
}

// startObserved is start for a session whose steps are noted.
func startObserved(t *testing.T, srv *etcdfake.Server) (*process, *steps) {
	t.Helper()
	s := new(steps)
	ctx := lease.Observe(t.Context(), func(step lease.Step) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if step.Key != "" {
			s.all = append(s.all, step)
		}
	})
	return &process{kit.StartIn(ctx, t, srv)}, s
}

// take returns the steps since the last call.
func (s *steps) take() []lease.Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// The models follow a run by these steps: tests/models/modeltrace.
func TestAttemptTellsItsSteps(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, steps := startObserved(t, srv)
		gate := p.Host.Lease().Gate()
		ahead := kit.Join(t, srv, entriesX)
		done := make(chan []*Grant, 1)
		go func() { // ends with its context
			grants, _ := Set{p.queue("x"), p.queue("y")}.Acquire(kit.Within(t, time.Minute), Request{})
			done <- grants
		}()
		kit.Queued(t, srv, entriesX, 2)
		ahead.Revoke()
		grants := <-done
		if len(grants) != 2 {
			t.Fatal("not granted")
		}
		x, y := grants[0], grants[1]
		created, waits, judged := x.Created, 0, false
		var got []string
		for _, step := range steps.take() {
			of := map[string]string{x.Key: "x", y.Key: "y"}[step.Key]
			text := fmt.Sprint(of, " ", step.Action)
			switch step.Action {
			case lease.Sends:
				if step.Gate != gate || step.Created != 0 {
					t.Errorf("%+v: the gate is %d", step, gate)
				}
			case lease.Judged:
				judged = true
				if step.Ahead == ahead.Key && step.AheadCreated > 0 && step.AheadCreated < created {
					text += ": one ahead"
				}
				if step.Delays {
					text += ", a delay"
				}
			case lease.Waited:
				waits++
			case lease.Holds:
				if step.Read <= created || step.Read != x.AcquiredRevision {
					t.Errorf("%+v: the look was at %d", step, x.AcquiredRevision)
				}
			}
			if judged && step.Created != created {
				t.Errorf("%+v: created at %d", step, created)
			}
			if len(got) == 0 || got[len(got)-1] != text { // a look may find the same
				got = append(got, text)
			}
		}
		want := []string{
			"x sends its put", "y sends its put", "x knows what stands ahead: one ahead", "y knows what stands ahead",
			"x knows what stands ahead, a delay", "x has waited for its lock delay", "x holds", "y holds",
		}
		if !slices.Equal(got, want) || waits != 1 {
			t.Errorf("steps:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if err := RemoveNow(t.Context(), grants, nil); err != nil {
			t.Error(err)
		}
	})
}

// An entry says that its delay begins if nothing but dead claims is ahead.
func TestEntrySaysWhenItsDelayBegins(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, steps := startObserved(t, srv)
		callers := Set{p.queue("x")}.join(Request{})
		a := newAttempt(callers, p.Host.Lease())
		if err := a.put(t.Context()); err != nil {
			t.Fatal(err)
		}
		steps.take()
		e := a.entries[0]
		for name, c := range map[string]struct {
			entry, claims string
			more, delays  bool
		}{
			"nothing":                        {},
			"an entry":                       {entry: "a@5", claims: "c:a@5"},
			"an entry, and a claim behind":   {entry: "a@5", claims: "c:a@5 c:b@6"},
			"a claim":                        {claims: "c:a@5", delays: true},
			"two claims":                     {claims: "c:a@5 c:b@6", delays: true},
			"a claim, and more":              {claims: "c:a@5", more: true, delays: true},
			"an entry, and more claims":      {entry: "a@5", claims: "c:b@6", more: true},
			"more claims, and none was read": {more: true, delays: true},
		} {
			r := reads(lockX, c.entry, c.claims)
			r.Range(1).More = c.more
			readAhead{entry: e}.note(r)
			said := steps.take()
			if len(said) != 1 || said[0].Action != lease.Judged || said[0].Delays != c.delays || said[0].Read != 99 ||
				(said[0].Ahead == "") != (c.entry == "") {
				t.Errorf("%s: %+v", name, said)
			}
		}
		e.ahead, e.claims, e.more = nil, nil, false
		giveUp(callers, a)
	})
}

// A claim of a turn that never held costs no delay.
func TestPermitSaysWhenItsDelayBegins(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, steps := startObserved(t, srv)
		g := mustAcquire(t, p.permits(1, 1))
		steps.take()
		held, waited := deadClaim{key: "held", rev: 3}, deadClaim{key: "waited", rev: 4, acquitted: true}
		for name, c := range map[string]struct {
			next   next
			delays bool
		}{
			"none":                        {next{}, false},
			"a turn ahead":                {next{behind: &mvccpb.KeyValue{Key: []byte("ahead"), CreateRevision: 5}}, false},
			"one that held":               {next{dead: []deadClaim{held}}, true},
			"one that waited":             {next{dead: []deadClaim{waited}}, false},
			"one that waited, and a held": {next{dead: []deadClaim{waited, held}}, true},
		} {
			g.permit.decide(c.next, 7)
			said := steps.take()
			if len(said) != 1 || said[0].Action != lease.Judged || said[0].Delays != c.delays || said[0].Read != 7 {
				t.Errorf("%s: %+v", name, said)
			}
		}
		g.permit.decide(next{hold: true}, 8)
		mustHandOff(t, g)
	})
}
