package election_test

import (
	"context"
	"errors"
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

// An observer hears later than the process itself that its term is lost; cut
// off, it hears nothing for as long as that lasts.
func TestLeaderHandlerOfAProcessWhoseTermWasLostNamesNoOtherCandidate(t *testing.T) {
	t.Parallel()
	cutOff(t, nil, func(t *testing.T, _ *etcdfake.Server, link *etcdfake.Link, sess *session.Session) {
		el := election.New(sess, "x").With(opts{MaxAge: time.Minute})
		o := newObserver(t, el)
		term := campaign(t, el, "v")
		synctest.Wait()
		link.BlackHole()
		time.Sleep(shortOutage)
		if status, answer := ask(t, o.LeaderHandler()); status != 503 || answer["reason"] != holdfast.ErrSuspended.Error() {
			t.Errorf("suspended: %d %v", status, answer)
		} else if current := answer["current"].(map[string]any); current["trusted"] != false {
			t.Errorf("suspended, and trusted all the same: %v", current)
		}
		<-term.Done()
		for range 2 { // at once, and when all the session keeps of the term is that it has ended
			status, answer := ask(t, o.LeaderHandler())
			reason, _ := answer["reason"].(string)
			if status != 503 || !strings.Contains(reason, "this process") || !strings.Contains(reason, term.Check().Error()) || answer["current"] != nil {
				t.Errorf("lost: %d %v", status, answer)
			}
			synctest.Wait()
		}
		if v := o.Current(); !v.Trusted || v.Leader.Token != term.Token() {
			t.Fatalf("the test shows nothing: the observer knows %+v", v)
		}
		time.Sleep(time.Minute)
		if status, answer := ask(t, o.LeaderHandler()); status != 503 || !strings.Contains(answer["reason"].(string), "not known") {
			t.Errorf("cut off for longer than the observer is trusted: %d %v", status, answer)
		}
	})
}

func TestLeaderHandlerOfAProcessThatIsNextSaysSo(t *testing.T) {
	t.Parallel()
	cutOff(t, nil, func(t *testing.T, srv *etcdfake.Server, link *etcdfake.Link, sess *session.Session) {
		other := open(t, srv.Client(), session.Options{Clock: session.MonotonicClock()})
		el := election.New(sess, "x").With(opts{MaxAge: time.Minute})
		o := newObserver(t, el)
		term := campaign(t, election.New(other, "x"), "other")
		next := campaignLater(t.Context(), el, "v")
		synctest.Wait()
		if _, answer := ask(t, o.LeaderHandler()); answer["reason"] != "another candidate leads" {
			t.Errorf("%v", answer)
		}
		// The observer is told of the vacancy, and what the waiter reads is not
		// answered.
		link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			return etcdfake.Fate{LoseRequest: c.Method == "Range" || c.Method == "Txn" && !isObserversRead(c), Silent: true}
		})
		resign(t, term)
		synctest.Wait()
		if status, answer := ask(t, o.LeaderHandler()); status != 503 || !strings.Contains(answer["reason"].(string), "has not begun") {
			t.Errorf("%d %v", status, answer)
		}
		link.Heal()
		won(t, next)
	})
}

// isObserversRead reports whether a Txn asks who leads.
func isObserversRead(c etcdfake.Call) bool {
	r, ok := c.Request.(*pb.TxnRequest)
	return ok && len(r.Compare) == 0 && len(r.Success) == 2 && r.Success[0].GetRequestRange().GetSortTarget() == pb.RangeRequest_CREATE &&
		string(r.Success[1].GetRequestRange().GetKey()) == "holdfast/epoch"
}

// One unit for all times of the handlers.
func TestHealthHandlerTellsTimesInMilliseconds(t *testing.T) {
	t.Parallel()
	cutOff(t, nil, func(t *testing.T, srv *etcdfake.Server, _ *etcdfake.Link, sess *session.Session) {
		el := election.New(sess, "x").With(opts{DrainTimeout: time.Second})
		release := make(chan struct{})
		done := make(chan struct{})
		err := el.RunWhileLeader(t.Context(), "v", func(_ context.Context, term *election.Term) error {
			defer close(done)
			srv.Delete(term.Key())
			<-release
			return nil
		})
		if !errors.Is(err, election.ErrNotDrained) {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_, answer := ask(t, el.HealthHandler())
		if ms, ok := answer["outlived_ms"].(float64); !ok || ms != 2000 {
			t.Errorf("%v", answer)
		}
		if _, ok := answer["confirmed_ms_ago"].(float64); !ok {
			t.Errorf("%v", answer)
		}
		close(release)
		<-done
	})
}
