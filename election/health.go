package election

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// LeaderHandler answers "does this process lead?": 200 while a term of the
// observer's election is held on its session, 503 otherwise, with the leader's
// identity either way. A term whose session is suspended counts for as long as
// Options.HealthTolerance says; a lost one never does. An observer of a Reader,
// which has no session, answers 503.
//
// It is for people, and for load balancers that send work to the leader alone.
// It is no readiness probe: of all replicas at most one leads, and a rollout
// that waits for the others to be ready waits for ever. Use HealthHandler there.
//
// It costs no RPC and answers at once, also when etcd does not. The body is
// JSON:
//
//		{"election":"scheduler","leader":false,"reason":"another candidate leads",
//		 "current":{"value":"node-2","token":"1042","age_ms":310,"trusted":true}}
//
//	  - election: the name, or prefix.
//	  - leader: this process leads.
//	  - reason: why it does not; absent when it does.
//	  - current: who leads, as far as this process knows; absent when it knows of
//	    no leader, and when the last it knew of was a term of its own that has
//	    ended.
//	  - current.value, current.token: as in Leader. The token is a string.
//	  - current.age_ms: how long ago, in milliseconds, the read was sent that saw
//	    it lead; 0 for this process's own term.
//	  - current.trusted: for another, that age_ms is at most Options.MaxAge; for
//	    this process, that its session is connected.
func (o *Observer) LeaderHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := o.leaderAnswer()
		reply(w, r, a.Leader, a)
	})
}

type leaderAnswer struct {
	Election string         `json:"election"`
	Leader   bool           `json:"leader"`
	Reason   string         `json:"reason,omitempty"`
	Current  *currentLeader `json:"current,omitempty"`
}

type currentLeader struct {
	Value   string        `json:"value"`
	Token   fencing.Token `json:"token"`
	AgeMS   int64         `json:"age_ms"`
	Trusted bool          `json:"trusted"`
}

func (o *Observer) leaderAnswer() leaderAnswer {
	e := o.election
	a := leaderAnswer{Election: o.reader.name}
	view := o.Current()
	var own *Term      // that the observer sees lead
	var unproved error // why a term of this process does not count
	if e != nil {
		var t *Term
		if t, unproved = e.leading(); t != nil {
			a.Leader = true
			a.Current = &currentLeader{Value: t.Value(), Token: t.Token(), Trusted: unproved == nil}
			return a
		}
		own = rosterOf(e).termAt(view.Leader.Token)
	}
	if view.Leader != (Leader{}) {
		a.Current = &currentLeader{view.Leader.Value, view.Leader.Token, view.Age.Milliseconds(), view.Trusted}
	}
	switch {
	case unproved != nil:
		a.Reason = unproved.Error()
		if own != nil && a.Current != nil {
			a.Current.Trusted = false
		}
	case !view.Trusted:
		a.Reason = fmt.Sprintf("who leads is not known: etcd has not answered for %v", view.Age.Round(time.Millisecond))
		if view.Err != nil {
			a.Reason = "who leads is not known: " + view.Err.Error()
		}
	case view.Leader == Leader{}:
		a.Reason = "nobody leads"
	case own != nil:
		// The observer is behind: it has not heard yet what the handle knows.
		a.Reason = "who leads is not known: it was this process until its term ended"
		if err := own.Check(); err != nil {
			a.Reason += ": " + err.Error()
		}
	case e == nil:
		a.Reason = "this process is no candidate"
	case view.Leader.Lease == e.queue.Session().Lease():
		a.Reason = "this process is first in the queue, and its term has not begun or has just ended"
	default:
		a.Reason = "another candidate leads"
	}
	if own != nil && !own.hold.Live() {
		a.Current = nil
	}
	return a
}

// leading returns the term that is held on this session, with
// holdfast.ErrSuspended if it cannot be proved just now; or nil, with the error
// that keeps a term from counting, if there is one.
func (e *Election) leading() (*Term, error) {
	terms, _ := rosterOf(e).present()
	var reason error
	for t := range terms {
		switch err := t.Check(); {
		case err == nil:
			return t, nil
		case errors.Is(err, holdfast.ErrSuspended) && e.queue.Session().Unconfirmed() <= e.opts.HealthTolerance:
			return t, err
		case errors.Is(err, holdfast.ErrSuspended):
			reason = err
		}
	}
	return nil, reason
}

// HealthHandler answers "can what this process says about its leadership be
// trusted?": 200 while the session is connected, or has been for the last time
// no longer ago than Options.HealthTolerance, and no function of an ended term
// has been running for longer than that; 503 otherwise. Whether this process
// leads makes no difference.
//
// It suits a readiness probe. As a liveness probe it restarts a process whose
// leader will not stop; with that use give a tolerance longer than any outage of
// etcd that should not restart all candidates at once.
//
// It costs no RPC and answers at once. The body is JSON:
//
//		{"election":"scheduler","healthy":true,"session":"connected","confirmed_ms_ago":812}
//
//	  - election: the name, or prefix.
//	  - healthy: the answer.
//	  - reason: why not; absent when healthy.
//	  - session: the session's state: connected, suspended, lost or closed.
//	  - confirmed_ms_ago: milliseconds since the last confirmed renewal was sent.
//	  - outlived_ms: for how many milliseconds a function has been running since
//	    its context ended with its term; absent when none does.
func (e *Election) HealthHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := e.health()
		reply(w, r, a.Healthy, a)
	})
}

type healthAnswer struct {
	Election    string `json:"election"`
	Healthy     bool   `json:"healthy"`
	Reason      string `json:"reason,omitempty"`
	Session     string `json:"session"`
	ConfirmedMS int64  `json:"confirmed_ms_ago"`
	OutlivedMS  *int64 `json:"outlived_ms,omitempty"`
}

func (e *Election) health() healthAnswer {
	a := healthAnswer{Election: e.Name()}
	if err := errors.Join(e.queue.Err(), e.opts.check()); err != nil {
		a.Reason = err.Error()
		return a
	}
	sess, tolerance := e.queue.Session(), e.opts.HealthTolerance
	proof := sess.Unconfirmed()
	a.Session, a.ConfirmedMS = sess.State().String(), proof.Milliseconds()
	if err := sess.Check(); err != nil && (proof > tolerance || errors.Is(err, holdfast.ErrClosed)) {
		a.Reason = err.Error()
	}
	terms, _ := rosterOf(e).present()
	now := sess.Base().Clock()()
	for t, p := range terms {
		if !p.running || t.hold.Live() {
			continue
		}
		var outlived time.Duration
		if p.told { // or else it is about to be
			outlived = now - p.since
		}
		ms := outlived.Milliseconds()
		a.OutlivedMS = &ms
		if outlived > tolerance || tolerance == 0 {
			a.Reason = "a function still runs although its term has ended: " + t.Check().Error()
		}
	}
	a.Healthy = a.Reason == ""
	return a
}

func reply(w http.ResponseWriter, r *http.Request, good bool, answer any) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if !good {
		w.WriteHeader(http.StatusServiceUnavailable)
	} else {
		w.WriteHeader(http.StatusOK)
	}
	_, _ = w.Write(append(body, '\n'))
}
