package election

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast"
)

// LeaderHandler answers 200 while this process holds a term of the election on the observer's session,
// or for Options.HealthTolerance while that is suspended; otherwise, and for a Reader, 503. Do not use
// it as a readiness probe: a rollout would wait for every replica to lead. It sends no RPC and answers
// in JSON:
//
//	{"election":"scheduler","leader":false,"reason":"another candidate leads",
//	 "current":{"value":"node-2","token":"1042","age_ms":310,"trusted":true}}
//
// A leader has no reason. current is absent if no leader is known, or if the last was a term of this
// process. age_ms counts from the sending of the read that found the leader, and is 0 for a term of
// this process; trusted says that age_ms is at most MaxAge, or that the session of this process's term
// is connected.
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
	Value   string         `json:"value"`
	Token   holdfast.Token `json:"token"`
	AgeMS   int64          `json:"age_ms"`
	Trusted bool           `json:"trusted"`
}

func (o *Observer) leaderAnswer() leaderAnswer {
	e := o.election
	a := leaderAnswer{Election: o.reader.name}
	view := o.Current()
	var own *Term      // this process's term, if the observer takes it for the leader
	var unproven error // why a term of this process does not count
	if e != nil {
		var t *Term
		if t, unproven = e.leading(); t != nil {
			a.Leader = true
			a.Current = &currentLeader{Value: t.Value(), Token: t.Token(), Trusted: unproven == nil}
			return a
		}
		own = termsOf(e).find(view.Leader.Token)
	}
	if view.Leader != (Leader{}) {
		a.Current = &currentLeader{view.Leader.Value, view.Leader.Token, view.Age.Milliseconds(), view.Trusted}
	}
	switch {
	case unproven != nil:
		a.Reason = unproven.Error()
		if own != nil && a.Current != nil {
			a.Current.Trusted = false
		}
	case view.Err != nil:
		a.Reason = "leader unknown: " + view.Err.Error()
	case !view.Trusted:
		a.Reason = fmt.Sprintf("leader unknown: no reply from etcd for %v", view.Age.Round(time.Millisecond))
	case view.Leader == Leader{}:
		a.Reason = "no candidate leads"
	case own != nil:
		// The term has ended; the observer has not heard of it yet.
		a.Reason = "leader unknown: this process led until its term ended"
		if err := own.Check(); err != nil {
			a.Reason += ": " + err.Error()
		}
	case e == nil:
		a.Reason = "this process is not a candidate"
	case view.Leader.Lease == e.queue.Host().Lease().ID():
		a.Reason = "this process is first in the queue, but its term has not begun or has just ended"
	default:
		a.Reason = "another candidate leads"
	}
	if own != nil && !own.hold.Live() {
		a.Current = nil
	}
	return a
}

// leading returns this session's term that counts as leading, with
// holdfast.ErrSuspended if it is only tolerated; or nil, and holdfast.ErrSuspended
// if there is a term that is not.
func (e *Election) leading() (*Term, error) {
	states, _ := termsOf(e).list()
	var reason error
	for t := range states {
		switch err := t.Check(); {
		case err == nil:
			return t, nil
		case errors.Is(err, holdfast.ErrSuspended) && e.queue.Host().Lease().Unconfirmed() <= e.opts.HealthTolerance:
			return t, err
		case errors.Is(err, holdfast.ErrSuspended):
			reason = err
		}
	}
	return nil, reason
}

// HealthHandler answers 200 while the session is connected and no function has outlived its term, or for
// Options.HealthTolerance after that; otherwise 503, whether this process leads or not. It is a readiness probe; as a
// liveness probe give it a tolerance longer than an outage of etcd should take to restart every candidate. It sends no
// RPC and answers in JSON:
//
//	{"election":"scheduler","healthy":true,"session":"connected","confirmed_ms_ago":812}
//
// confirmed_ms_ago counts from the sending of the last confirmed renewal. With healthy false there is a reason, and
// outlived_ms if a function has outlived its term.
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
	if err := errors.Join(e.queue.Err(), e.opts.validate()); err != nil {
		a.Reason = err.Error()
		return a
	}
	host, tolerance := e.queue.Host(), e.opts.HealthTolerance
	unconfirmed := host.Lease().Unconfirmed()
	a.Session, a.ConfirmedMS = host.State().String(), unconfirmed.Milliseconds()
	if err := host.Check(); err != nil && (unconfirmed > tolerance || errors.Is(err, holdfast.ErrClosed)) {
		a.Reason = err.Error()
	}
	states, _ := termsOf(e).list()
	now := host.Clock()()
	for t, s := range states {
		if !s.running || t.hold.Live() {
			continue
		}
		var outlived time.Duration
		if s.stopped { // or else it is about to be
			outlived = now - s.since
		}
		ms := outlived.Milliseconds()
		a.OutlivedMS = &ms
		if outlived > tolerance || tolerance == 0 {
			a.Reason = "a function is still running after its term ended: " + t.Check().Error()
		}
	}
	a.Healthy = a.Reason == ""
	return a
}

func reply(w http.ResponseWriter, r *http.Request, ok bool, answer any) {
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
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
