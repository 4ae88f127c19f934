package election_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

func TestLeaderHandlerSaysWhetherThisProcessLeadsAndWhoDoes(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		a, b := s.election(), s.other(t)
		handler := startObserver(t, a).LeaderHandler()
		check := func(wantStatus int, value, reason any) (current map[string]any) {
			t.Helper()
			synctest.Wait()
			status, answer := probe(t, handler)
			current, _ = answer["current"].(map[string]any)
			if status != wantStatus || current["value"] != value || answer["reason"] != reason ||
				answer["leader"] != (status == 200) {
				t.Errorf("%d %v, want %d, value %v, reason %v", status, answer, wantStatus, value, reason)
			}
			return current
		}
		check(503, nil, "no candidate leads")
		term := campaign(t, a, "a <\"\xff")
		check(200, "a <\"\ufffd", nil)
		resign(t, term)
		term = campaign(t, b, "b")
		if current := check(503, "b", "another candidate leads"); current["token"] != term.Token().String() {
			t.Errorf("current %v", current)
		}
		resign(t, term)
		term = campaign(t, a, "a")
		check(200, "a", nil)
		s.srv.Revoke(term.Lease())
		check(503, nil, "no candidate leads")

		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST: %d", w.Code)
		}
	})
}

// An observer hears later than the process itself that its term is lost, and if it
// is cut off it hears nothing.
func TestLeaderHandlerDoesNotTakeALostTermForAnotherCandidate(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{MaxAge: time.Minute})
		o := startObserver(t, el)
		term := campaign(t, el, "v")
		synctest.Wait()
		s.link.BlackHole()
		time.Sleep(shortOutage)
		status, answer := probe(t, o.LeaderHandler())
		current, _ := answer["current"].(map[string]any)
		if status != 503 || answer["reason"] != holdfast.ErrSuspended.Error() || current["trusted"] != false {
			t.Errorf("suspended: %d %v", status, answer)
		}
		<-term.Done()
		for range 2 { // at once, and after the session has forgotten all but the term's end
			status, answer := probe(t, o.LeaderHandler())
			reason, _ := answer["reason"].(string)
			if status != 503 || !strings.Contains(reason, "this process led") ||
				!strings.Contains(reason, term.Check().Error()) || answer["current"] != nil {
				t.Errorf("lost: %d %v", status, answer)
			}
			synctest.Wait()
		}
		if v := o.Current(); !v.Trusted || v.Leader.Token != term.Token() {
			t.Fatalf("the observer has heard of it, so this test shows nothing: %+v", v)
		}
		time.Sleep(time.Minute)
		status, answer = probe(t, o.LeaderHandler())
		if status != 503 || !strings.Contains(answer["reason"].(string), "unknown") {
			t.Errorf("cut off for longer than MaxAge: %d %v", status, answer)
		}
	})
}

// The observer has not heard that this process leads when the session is suspended.
func TestLeaderHandlerOfASuspendedLeaderThatTheObserverHasNotSeen(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{MaxAge: time.Minute})
		o := startObserver(t, el)
		synctest.Wait()
		s.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			return etcdfake.Fate{LoseReply: c.Request == nil || isObserversRead(c), Silent: true}
		})
		campaign(t, el, "v")
		s.link.BlackHole()
		time.Sleep(shortOutage)
		status, answer := probe(t, o.LeaderHandler())
		if status != 503 || answer["reason"] != holdfast.ErrSuspended.Error() || answer["current"] != nil {
			t.Errorf("%d %v", status, answer)
		}
		s.link.Heal()
	})
}

func TestLeaderHandlerSaysWhenThisProcessIsNext(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{MaxAge: time.Minute})
		o := startObserver(t, el)
		term := campaign(t, s.other(t), "other")
		next := campaignLater(t.Context(), el, "v")
		synctest.Wait()
		if _, answer := probe(t, o.LeaderHandler()); answer["reason"] != "another candidate leads" {
			t.Errorf("%v", answer)
		}
		// The observer hears of the vacancy; what the candidate reads is not answered.
		s.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			return etcdfake.Fate{LoseRequest: c.Method == "Range" || c.Method == "Txn" && !isObserversRead(c), Silent: true}
		})
		resign(t, term)
		synctest.Wait()
		status, answer := probe(t, o.LeaderHandler())
		if status != 503 || !strings.Contains(answer["reason"].(string), "has not begun") {
			t.Errorf("%d %v", status, answer)
		}
		s.link.Heal()
		won(t, next)
	})
}

// isObserversRead reports whether a Txn asks who leads.
func isObserversRead(c etcdfake.Call) bool {
	r, ok := c.Request.(*pb.TxnRequest)
	return ok && len(r.Compare) == 0 && len(r.Success) == 2 &&
		string(r.Success[0].GetRequestRange().GetKey()) == "holdfast/epoch" &&
		r.Success[1].GetRequestRange().GetSortTarget() == pb.RangeRequest_CREATE
}

func TestLeaderHandlerOfAReaderIsNoCandidates(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		r := election.NewReader(s.link.Client(), "x").With(election.ReaderOptions{Clock: session.MonotonicClock()})
		o, err := r.Observer(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		campaign(t, s.election(), "v")
		synctest.Wait()
		status, answer := probe(t, o.LeaderHandler())
		current, _ := answer["current"].(map[string]any)
		if status != 503 || answer["reason"] != "this process is not a candidate" || current["value"] != "v" {
			t.Errorf("%d %v", status, answer)
		}
	})
}

func TestHealthToleranceCoversASuspensionButNoLoss(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		strict := s.election()
		lenient := strict.With(opts{HealthTolerance: time.Minute})
		strictly, leniently := startObserver(t, strict), startObserver(t, lenient)
		type answers struct{ leader, leaderLenient, health, healthLenient int }
		check := func(when string, want answers) {
			t.Helper()
			var got answers
			got.leader, _ = probe(t, strictly.LeaderHandler())
			got.leaderLenient, _ = probe(t, leniently.LeaderHandler())
			got.health, _ = probe(t, strict.HealthHandler())
			got.healthLenient, _ = probe(t, lenient.HealthHandler())
			if got != want {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		term := campaign(t, strict, "v")
		check("connected", answers{200, 200, 200, 200})
		s.link.BlackHole()
		time.Sleep(shortOutage)
		check("suspended", answers{503, 200, 503, 200})
		<-term.Done()
		check("lost", answers{503, 503, 503, 200})
		time.Sleep(2 * time.Minute)
		check("still cut off", answers{503, 503, 503, 503})
		s.link.Heal()
		time.Sleep(10 * time.Second)
		check("a new lease", answers{503, 503, 200, 200})
		if err := s.sess.Close(deadline(t)); err != nil {
			t.Error(err)
		}
		check("closed", answers{503, 503, 503, 503})
		if got, _ := probe(t, strict.With(opts{HealthTolerance: -1}).HealthHandler()); got != 503 {
			t.Errorf("with options out of range: %d", got)
		}
	})
}

func TestHealthHandlerReportsAFunctionThatOutlivesItsTerm(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{Value: "v", DrainTimeout: time.Second})
		lenient := el.With(opts{HealthTolerance: time.Minute})
		release := make(chan struct{})
		err := el.RunWhileLeader(deadline(t), func(_ context.Context, term *election.Term) error {
			if got, answer := probe(t, el.HealthHandler()); got != 200 {
				t.Errorf("leading: %d %v", got, answer)
			}
			s.srv.Revoke(term.Lease())
			<-release
			return nil
		})
		if !errors.Is(err, election.ErrNotDrained) {
			t.Error(err)
		}
		if lines := s.log.lines("function still running DrainTimeout after its term ended"); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
		time.Sleep(time.Second)
		status, answer := probe(t, el.HealthHandler())
		_, confirmed := answer["confirmed_ms_ago"].(float64)
		if status != 503 || answer["outlived_ms"] != 2000.0 || answer["session"] != "connected" ||
			answer["reason"] == nil || !confirmed {
			t.Errorf("%d %v", status, answer)
		}
		if status, answer := probe(t, lenient.HealthHandler()); status != 200 {
			t.Errorf("within the tolerance: %d %v", status, answer)
		}
		time.Sleep(time.Minute)
		if status, answer := probe(t, lenient.HealthHandler()); status != 503 {
			t.Errorf("after the tolerance: %d %v", status, answer)
		}
		close(release)
		synctest.Wait()
		if status, answer := probe(t, el.HealthHandler()); status != 200 {
			t.Errorf("after the function has returned: %d %v", status, answer)
		}
	})
}
