package requests_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

func TestPauseIsTwiceTheTimeOfTheLatestReply(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		send := func(replies ...reply) []time.Duration {
			r.answer(t, requests.Read, 20) // pays for the copies
			r.mu.Lock()
			r.replies, r.at, r.began = replies, nil, time.Now()
			r.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, _, _ = r.once(ctx, requests.Write)
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
			{[]reply{{1400 * ms, nil}}, []time.Duration{0, 250 * ms, 625 * ms}},
			{nil, []time.Duration{0, 2800 * ms}},
			{[]reply{{2700 * ms, nil}}, []time.Duration{0}}, // a request without a reply changes no pause
		} {
			if got := send(c.replies...); !slices.Equal(got, c.want) {
				t.Errorf("%v: sent at %v, want %v", c.replies, got, c.want)
			}
		}
	})
}

// A slow write says nothing about reads: the disks may be slow alone.
func TestSlowReplyToOneKindDoesNotDelayAnother(t *testing.T) {
	for _, c := range []struct {
		slow, next requests.Kind
		want       time.Duration
	}{
		{requests.Read, requests.Read, 2 * time.Second},
		{requests.Read, requests.Renewal, 250 * ms},
		{requests.Write, requests.Read, 150 * ms},
	} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 1, reply{time.Second, nil})
			_, _, _ = r.once(t.Context(), c.slow)
			if c.slow == requests.Write {
				r.answer(t, requests.Read, 20) // pays for its copies
			} else {
				r.answer(t, requests.Write, 20)
			}
			if sent := r.hung(t, c.next, 3*time.Second); len(sent) < 2 || sent[1] != c.want {
				t.Errorf("kind %d was slow, then kind %d is sent at %v, want again after %v", c.slow, c.next, sent, c.want)
			}
		})
	}
}

// A copy answers a request of limited time whose first send hangs: it has as long for its reply as the first.
func TestCopyOfARequestWithALimitedTimeHasTimeForItsReply(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1, reply{3 * time.Second, nil})
		_, _, _ = r.once(t.Context(), requests.Proof)
		r.replies, r.at, r.began = []reply{hangs, {3900 * ms, nil}}, nil, time.Now()
		const limit = 8 * time.Second
		left := func() time.Duration { return limit - time.Since(r.began) }
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if _, _, err := requests.OnceWithin(ctx, r.sender, requests.Proof, left, r.send); err != nil || r.at[1] != limit/2 {
			t.Errorf("sent at %v: %v", r.at, err)
		}
	})
}
