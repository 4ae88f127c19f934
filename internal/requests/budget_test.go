package requests_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

// answer makes calls that are answered at once.
func (r *fakeRequests) answer(t *testing.T, k requests.Kind, times int) {
	t.Helper()
	for range times {
		r.mu.Lock()
		r.replies, r.at = []reply{{5 * ms, nil}}, nil
		r.mu.Unlock()
		if _, _, err := r.once(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
}

// After rounds that no member has answered, answers pay for the next one: ten for each copy of a caller, three for each
// of the session itself, which sends one copy until then.
func TestAnswersPayForRounds(t *testing.T) {
	for _, endpoints := range []int{1, 3, 5} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, endpoints)
			sent := func(k requests.Kind, copies int) {
				t.Helper()
				if sent := r.hung(t, k, 300*ms); len(sent) != 1+copies {
					t.Errorf("%d endpoints: a call of kind %d is sent at %v, want %d copies", endpoints, k, sent, copies)
				}
			}
			r.answer(t, requests.Write, 50*endpoints) // nothing is saved up
			sent(requests.Write, endpoints)
			sent(requests.Read, endpoints)
			sent(requests.Write, 0)
			r.answer(t, requests.Renewal, 50*endpoints)
			sent(requests.Write, 0)
			r.answer(t, requests.Read, 10*endpoints-1)
			sent(requests.Write, 0)
			r.answer(t, requests.Read, 1)
			sent(requests.Write, endpoints)

			sent(requests.Proof, endpoints)
			sent(requests.Renewal, 1)
			r.answer(t, requests.Renewal, 3*endpoints-1)
			sent(requests.Grant, 1)
			r.answer(t, requests.Proof, 1)
			sent(requests.Renewal, endpoints)
		})
	}
}

// Without a connection to etcd each send waits for one. When etcd is back, all are sent.
func TestUnansweredSendsAreFew(t *testing.T) {
	for _, endpoints := range []int{1, 3, 5} {
		for _, k := range []requests.Kind{requests.Grant, requests.Read, requests.Write} {
			bubble.Test(t, func(t *testing.T) {
				r := newRequests(t, endpoints)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var mu sync.Mutex
				waiting, most := 0, 0
				_, _, err := requests.Once(ctx, r.sender, k, func(ctx context.Context) (int, error) {
					mu.Lock()
					waiting++
					most = max(most, waiting)
					mu.Unlock()
					<-ctx.Done()
					mu.Lock()
					defer mu.Unlock()
					waiting--
					return 0, ctx.Err()
				})
				if err == nil || most < 2 || most > 20*endpoints {
					t.Errorf("%d endpoints, kind %d: %d wait at a time; %v", endpoints, k, most, err)
				}
			})
		}
	}
}

// The reply to a request that has waited for hours says nothing of how long replies take.
func TestPauseAfterALongWaitIsShort(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3, reply{time.Hour, nil}, reply{time.Hour, nil}, reply{time.Hour, nil}, reply{time.Hour, nil},
			reply{time.Hour, nil})
		if _, _, err := r.once(t.Context(), requests.Grant); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		r.replies, r.at = []reply{hangs, {5 * ms, nil}}, nil
		r.mu.Unlock()
		began := time.Now()
		if _, _, err := r.once(t.Context(), requests.Grant); err != nil || time.Since(began) > 11*time.Second {
			t.Errorf("answered after %v: %v", time.Since(began), err)
		}
	})
}

// A round that gets past a hung member costs nothing.
func TestRoundThatWinsIsNotPaidFor(t *testing.T) {
	for _, k := range []requests.Kind{requests.Write, requests.Renewal} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 3)
			for range 10 {
				r.mu.Lock()
				r.replies, r.at = []reply{hangs, hangs, {5 * ms, nil}}, nil
				r.mu.Unlock()
				if _, _, err := r.once(t.Context(), k); err != nil || len(r.at) != 4 {
					t.Fatalf("kind %d: sent at %v: %v", k, r.at, err)
				}
			}
		})
	}
}

// Nor is a round paid for by the reply to a single copy.
func TestSingleCopyThatWinsPaysForNoRound(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3)
		sent := func(what string, want int) {
			t.Helper()
			if at := r.hung(t, requests.Renewal, 300*ms); len(at) != want {
				t.Errorf("%s: sent at %v, want %d times", what, at, want)
			}
		}
		sent("a round on credit", 4)
		r.mu.Lock()
		r.replies, r.at = []reply{hangs, {5 * ms, nil}}, nil
		r.mu.Unlock()
		if _, _, err := r.once(t.Context(), requests.Renewal); err != nil || len(r.at) != 2 {
			t.Fatalf("sent at %v: %v", r.at, err)
		}
		sent("it is still owed", 2)
		r.answer(t, requests.Renewal, 9)
		sent("it is paid", 4)
	})
}

// Callers beside a hung member wait for one round of copies, not each for a round of its own.
func TestRoundThatWinsSetsOffThoseInLine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3)
		r.replies = append(slices.Repeat([]reply{hangs}, 20), slices.Repeat([]reply{{10 * ms, nil}}, 60)...)
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() { _, _, _ = r.once(t.Context(), requests.Write) })
		}
		calls.Wait()
		took := time.Since(r.began)
		if took != 350*ms || len(r.at) != 80 { // two at a time
			t.Errorf("20 calls took %v, and were sent %d times", took, len(r.at))
		}
	})
}

// A slow etcd answers the first sends, late. Then the calls that wait for rounds send none.
func TestCallsThatAreAnsweredLateSendFewCopies(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		r.replies = slices.Repeat([]reply{{900 * ms, nil}}, 500)
		var calls sync.WaitGroup
		for range 200 {
			calls.Go(func() { _, _, _ = r.once(t.Context(), requests.Write) })
		}
		calls.Wait()
		took := time.Since(r.began)
		if took != 900*ms || len(r.at) > 200+2+20 {
			t.Errorf("200 calls took %v, and were sent %d times", took, len(r.at))
		}
	})
}

// While nothing is answered, time pays for rounds: soon at first, because an election in etcd takes a second.
func TestTimePaysForRoundsWhileACallWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		// Each pause of the call is half as long again as the one before. Then it waits for 1, 2, 4, 5 s.
		want := []time.Duration{0, 250 * ms, 625 * ms, 2187500 * us, 5031250 * us, 10296875 * us, 17195312500}
		if sent := r.hung(t, requests.Write, 20*time.Second); !slices.Equal(sent, want) {
			t.Errorf("sent at %v, want %v", sent, want)
		}
		time.Sleep(time.Minute) // no call waits: nothing is saved up
		if sent := r.hung(t, requests.Write, 2*time.Second); len(sent) != 1 {
			t.Errorf("the next call is sent at %v", sent)
		}
		r.answer(t, requests.Write, 20)
		if sent := r.hung(t, requests.Write, 20*time.Second); !slices.Equal(sent, want) {
			t.Errorf("after answers sent at %v, want %v", sent, want)
		}
	})
}

// However many wait, one of them sends a round at a time.
func TestTimePaysForOneRoundAtATime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() { _, _, _ = r.once(ctx, requests.Write) })
		}
		calls.Wait()
		var sent []time.Duration
		for _, at := range r.at[100:] {
			sent = append(sent, at.Round(time.Second))
		}
		// Two on credit after 250 ms, and from then on after 1, 2, 4, 5, 5 … s.
		want := []time.Duration{0, 0, 1, 3, 7, 12, 17, 22, 27}
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(sent, want) {
			t.Errorf("copies were sent at %v, want %v", sent, want)
		}
	})
}

// A call that has gone takes no token from those behind it in line.
func TestCallThatHasGoneIsPassedOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		_, _ = r.hung(t, requests.Write, 300*ms), r.hung(t, requests.Write, 300*ms)
		if sent := r.hung(t, requests.Write, 300*ms); len(sent) != 1 {
			t.Fatalf("sent at %v: this tests nothing", sent)
		}
		if sent := r.hung(t, requests.Read, 1100*ms); len(sent) != 2 { // a second after the first stood in line
			t.Errorf("sent at %v", sent)
		}
	})
}

// A request that has a limited time is sent often enough to be answered before that has passed.
func TestRequestWithALimitedTimeIsSentUntilThatIsOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		const limit = 2500 * ms
		left := func() time.Duration { return limit - time.Since(r.began) }
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, _, _ = requests.OnceWithin(ctx, r.sender, requests.Renewal, left, r.send)
		before := time.Duration(0)
		for _, at := range append(r.at[1:], limit) {
			if at-before > max(100*ms, (limit-before)*2/3) {
				t.Errorf("sent at %v: nothing is sent from %v to %v", r.at, before, at)
			}
			before = at
		}
		if len(r.at) > 10 || r.at[1] != 100*ms {
			t.Errorf("sent at %v", r.at)
		}
	})
}
