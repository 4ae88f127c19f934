package attempt_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/bubble"
)

func TestPauseIsTwiceTheTimeOfTheLatestReply(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		send := func(replies ...reply) []time.Duration {
			r.mu.Lock()
			r.replies, r.at, r.began = replies, nil, time.Now()
			r.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, _, _ = r.once(ctx, attempt.Write)
			r.sender.Wait()
			return r.at
		}
		for _, c := range []struct {
			replies []reply
			want    []time.Duration
		}{
			{[]reply{{200 * ms, nil}}, []time.Duration{0}},
			{[]reply{{350 * ms, denied}}, []time.Duration{0}}, // within twice 200 ms; a verdict is a reply
			{[]reply{{650 * ms, nil}}, []time.Duration{0}},    // within twice 350 ms
			{[]reply{hangs, {5 * ms, refused}, {5 * ms, nil}}, []time.Duration{0, 1300 * ms, 3250 * ms}},
			// a refusal is no reply
			{[]reply{hangs, {5 * ms, nil}}, []time.Duration{0, 250 * ms}},
			// 5 ms, from its own send to its reply
			{[]reply{{1400 * ms, nil}}, again(1, 250*ms, 625*ms, 1187500*time.Microsecond)},
			{nil, []time.Duration{0, 2800 * ms}},
			{[]reply{{2700 * ms, nil}}, []time.Duration{0}}, // a request without a reply changes no pause
		} {
			if got := send(c.replies...); !slices.Equal(got, c.want) {
				t.Errorf("%v: sent at %v, want %v", c.replies, got, c.want)
			}
		}
	})
}
