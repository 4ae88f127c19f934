package sending

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
)

// The timer may have fired while the race ends. What it sends then would not be canceled any more.
func TestTimerThatFiresAsTheRaceEndsSendsNothing(t *testing.T) {
	for name, end := range map[string]func(r *race[int], first context.Context){
		"by a reply":      func(r *race[int], first context.Context) { r.send(first) },
		"with its caller": func(r *race[int], _ context.Context) { r.end() },
	} {
		s := New(clientv3.NewCtxClient(t.Context()), backoff.Policy{Attempt: time.Minute})
		ended := false
		r, first := newRace(t.Context(), s, Write, func(context.Context) (int, error) {
			if ended {
				t.Errorf("race that ended %s: sent again", name)
			}
			return 0, nil
		})
		end(r, first)
		ended = true
		r.repeat()
		if s.beside != 0 || len(r.cancels) != 0 {
			t.Errorf("race that ended %s: %d sends in flight, %d to be canceled", name, s.beside, len(r.cancels))
		}
	}
}
