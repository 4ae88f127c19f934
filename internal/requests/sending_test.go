package requests_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

func TestRequestThatIsAnsweredIsSentOnce(t *testing.T) {
	for _, err := range []error{nil, denied, rpctypes.ErrLeaseNotFound, rpctypes.ErrNoSpace, refused, unavailable} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 3, reply{10 * ms, err})
			_, open, got := r.once(t.Context(), requests.Write)
			if got != err || open != (err == unavailable) {
				t.Errorf("%v: got %v, open %v", err, got, open)
			}
			time.Sleep(time.Minute)
			r.ended(0)
		})
	}
}

func TestRequestThatHangsIsSentToEachEndpoint(t *testing.T) {
	for k, c := range map[requests.Kind]struct {
		after  []time.Duration
		rounds int // of the first copies; then one copy is sent, or none before its time
	}{
		requests.Read:    {[]time.Duration{150 * ms, 375 * ms, 1712500 * us}, 3},
		requests.Write:   {[]time.Duration{250 * ms, 625 * ms, 2187500 * us}, 3},
		requests.Proof:   {[]time.Duration{250 * ms, 1000 * ms, 3250 * ms}, 1},
		requests.Renewal: {[]time.Duration{250 * ms, 1000 * ms, 3250 * ms}, 1},
		requests.Grant:   {[]time.Duration{250 * ms, 1000 * ms, 3250 * ms}, 1},
	} {
		for _, endpoints := range []int{1, 3, 5} {
			bubble.Test(t, func(t *testing.T) {
				want := []time.Duration{0}
				for i, at := range c.after {
					n := 1
					if i < c.rounds {
						n = endpoints
					}
					want = append(want, slices.Repeat([]time.Duration{at}, n)...)
				}
				r := newRequests(t, endpoints)
				r.replies = slices.Repeat([]reply{hangs}, len(want)-1)
				r.replies = append(r.replies, reply{after: 5 * ms})
				i, open, err := r.once(t.Context(), k)
				if i != len(want)-1 || !open || err != nil || time.Since(r.began) != c.after[2]+5*ms {
					t.Errorf("kind %d, %d endpoints: send %d won after %v, open %v, %v",
						k, endpoints, i, time.Since(r.began), open, err)
				}
				r.ended(want...)
				if r.canceled != len(want)-1 {
					t.Errorf("%d endpoints: %d of %d losers canceled", endpoints, r.canceled, len(want)-1)
				}
			})
		}
	}
}

// roundRobin sends requests to the members in turn, of which one hangs.
type roundRobin struct {
	members int64
	hangs   int64
	next    atomic.Int64
}

func (c *roundRobin) send(ctx context.Context) (struct{}, error) {
	if (c.next.Add(1)-1)%c.members == c.hangs {
		<-ctx.Done()
		return struct{}{}, ctx.Err()
	}
	time.Sleep(ms)
	return struct{}{}, nil
}

// A caller that sends one request after the other must not meet the hung member every time because its repeats move the
// round robin back to that member.
func TestRepeatsDoNotMoveTheRoundRobinBackToTheHungMember(t *testing.T) {
	for _, members := range []int{2, 3, 4, 5, 7} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, members)
			c := &roundRobin{members: int64(members)}
			const each = 100
			slow := 0
			for range each * members {
				began := time.Now()
				if _, _, err := requests.Once(t.Context(), r.sender, requests.Write, c.send); err != nil {
					t.Fatal(err)
				}
				if time.Since(began) > ms {
					slow++
				}
			}
			if slow != each {
				t.Errorf("%d members: %d of %d each went to the hung member first, want %d",
					members, slow, each*members, each)
			}
		})
	}
}

func TestCallThatItsCallerEndsReturnsThatAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*ms, cancel)
		if _, open, err := r.once(ctx, requests.Write); err != context.Canceled || !open {
			t.Errorf("open %v, %v", open, err)
		}
	})
}

// A disk may be so slow that each commit takes longer than any timeout that one would choose.
func TestReplyMayTakeAsLongAsTheContext(t *testing.T) {
	for k := range requests.Unhurried {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 1)
			r.replies = slices.Repeat([]reply{{after: time.Minute}}, 100)
			if i, _, err := r.once(t.Context(), k); i != 0 || err != nil {
				t.Errorf("kind %d: send %d: %v", k, i, err)
			}
		})
	}
}

// If a member or a proxy says that a deadline has passed, the client behind a KV that was replaced may send the write
// again unnoticed.
func TestEachSendOfAWriteByAReplacedKVIsBounded(t *testing.T) {
	for k, want := range map[requests.Kind]time.Duration{requests.Write: requests.Patience, requests.Read: time.Minute} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 1)
			cli := clientv3.NewCtxClient(t.Context())
			cli.KV = struct{ clientv3.KV }{}
			s := requests.NewSender(cli, backoff.Policy{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var first atomic.Int64
			_, _, err := requests.Once(ctx, s, k, func(ctx context.Context) (int, error) {
				began := time.Now()
				i, err := r.send(ctx)
				if i == 0 {
					first.Store(int64(time.Since(began)))
				}
				return i, err
			})
			if took := time.Duration(first.Load()); took != want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("kind %d: the first send took %v, want %v: %v", k, took, want, err)
			}
		})
	}
}

// What no caller waits for adds nothing to the load of a slow etcd.
func TestUnhurriedRequestIsSentOnceAndGivenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3)
		_, open, err := r.once(t.Context(), requests.Unhurried)
		if !open || !errors.Is(err, context.DeadlineExceeded) || time.Since(r.began) != 5*time.Second {
			t.Errorf("after %v: open %v, %v", time.Since(r.began), open, err)
		}
		r.ended(0)
	})
}

func TestOnceEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3, reply{10 * ms, nil}, hangs, hangs)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, open, err := r.once(ctx, requests.Read); open || err != nil {
			t.Errorf("open %v, %v", open, err)
		}
		began := time.Now()
		if _, open, err := r.once(ctx, requests.Write); !open || err != context.DeadlineExceeded ||
			time.Since(began) != 990*ms {
			t.Errorf("after %v: open %v, %v", time.Since(began), open, err)
		}
		sent := len(r.at)
		if _, open, err := r.once(ctx, requests.Write); open || !errors.Is(err, context.DeadlineExceeded) ||
			len(r.at) != sent {
			t.Errorf("on a dead context: open %v, %v, %d sent", open, err, len(r.at)-sent)
		}
	})
}

func TestOnceEndsWithItsContextAfterTheFirstSendHasFailed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1, reply{300 * ms, unavailable})
		ctx, cancel := context.WithTimeout(t.Context(), 600*ms)
		defer cancel()
		if _, open, err := r.once(ctx, requests.Write); !open || !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, unavailable) {
			t.Errorf("open %v, %v", open, err)
		}
		r.ended(0, 250*ms)
	})
}

// The first send fails, and a copy hangs. Nothing else ends the call: its caller has no deadline. Found by the
// simulation: a session cleaned up after unanswered requests no more.
func TestCopyThatHangsAfterTheFirstSendHasFailedIsGivenUp(t *testing.T) {
	for k, want := range map[requests.Kind]time.Duration{requests.Read: 525 * ms, requests.Write: 675 * ms} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 1, reply{300 * ms, unavailable})
			_, open, err := r.once(t.Context(), k)
			if took := time.Since(r.began); !open || !errors.Is(err, unavailable) || took != want {
				t.Errorf("kind %d: after %v, want %v: open %v, %v", k, took, want, open, err)
			}
		})
	}
}

// Nothing is left in flight, and etcd has refused it: the outcome is known, though the caller has gone.
func TestRefusalThatComesAfterTheContextsEndIsTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		_, open, err := requests.Once(ctx, r.sender, requests.Write, func(context.Context) (int, error) {
			time.Sleep(200 * ms)
			return 0, refused
		})
		if open || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, refused) {
			t.Errorf("open %v, %v", open, err)
		}
	})
}

func TestAskRetriesTransientErrorsWithPauses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3, reply{0, unavailable}, reply{0, rpctypes.ErrNoLeader}, reply{0, refused}, reply{0, nil})
		i, err := requests.Ask(t.Context(), r.sender, requests.Read, r.send)
		if i != 3 || err != nil || len(r.at) != 4 {
			t.Errorf("%d, %v, sent at %v", i, err, r.at)
		}
		for j := range r.at[1:] {
			if r.at[j+1] == r.at[j] {
				t.Errorf("sent at %v: without a pause", r.at)
			}
		}
	})
}

func TestOnceCostsATimerAndAContext(t *testing.T) {
	s := newRequests(t, 3).sender
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	op := func(context.Context) (int, error) { return 0, nil }
	const most = 10
	if n := testing.AllocsPerRun(100, func() { _, _, _ = requests.Once(ctx, s, requests.Write, op) }); n > most {
		t.Errorf("%v allocations, want at most %d", n, most)
	} else {
		t.Logf("%v allocations", n)
	}
}
