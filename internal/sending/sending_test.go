package sending_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/sending"
)

func TestRequestThatIsAnsweredIsSentOnce(t *testing.T) {
	for _, err := range []error{nil, denied, rpctypes.ErrLeaseNotFound, rpctypes.ErrNoSpace, refused, unavailable} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 3, reply{10 * ms, err})
			_, open, got := r.once(t.Context(), sending.Write)
			if got != err || open != (err == unavailable) {
				t.Errorf("%v: got %v, open %v", err, got, open)
			}
			time.Sleep(time.Minute)
			r.ended(0)
		})
	}
}

func TestRequestThatHangsIsSentToEachEndpoint(t *testing.T) {
	for k, after := range map[sending.Kind][]time.Duration{
		sending.Read:    {150 * ms, 375 * ms, 712500 * us},
		sending.Proof:   {250 * ms, 1000 * ms, 3250 * ms},
		sending.Renewal: {250 * ms, 1000 * ms, 3250 * ms},
		sending.Grant:   {250 * ms, 1000 * ms, 3250 * ms},
		sending.Write:   {250 * ms, 625 * ms, 1187500 * us},
	} {
		for _, endpoints := range []int{1, 3, 5} {
			bubble.Test(t, func(t *testing.T) {
				want := again(endpoints, after...)
				r := newRequests(t, endpoints)
				r.replies = slices.Repeat([]reply{hangs}, len(want)-1)
				r.replies = append(r.replies, reply{after: 5 * ms})
				i, open, err := r.once(t.Context(), k)
				if i != len(want)-1 || !open || err != nil || time.Since(r.began) != after[2]+5*ms {
					t.Errorf("%d endpoints: send %d won after %v, open %v, %v", endpoints, i, time.Since(r.began), open, err)
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
			const requests = 100
			slow := 0
			for range requests * members {
				began := time.Now()
				if _, _, err := sending.Once(t.Context(), r.sender, sending.Write, c.send); err != nil {
					t.Fatal(err)
				}
				if time.Since(began) > ms {
					slow++
				}
			}
			r.sender.Wait()
			if slow != requests {
				t.Errorf("%d members: %d of %d requests went to the hung member first, want %d",
					members, slow, requests*members, requests)
			}
		})
	}
}

func TestCallThatItsCallerEndsReturnsThatAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*ms, cancel)
		if _, open, err := r.once(ctx, sending.Write); err != context.Canceled || !open {
			t.Errorf("open %v, %v", open, err)
		}
	})
}

// A reply may take longer than the policy's Attempt, by which a call that fails would be made again.
func TestReadWaitsForALateReply(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1, reply{after: 6 * time.Second})
		if i, err := sending.Ask(t.Context(), r.sender, sending.Read, r.send); i != 0 || err != nil {
			t.Errorf("send %d: %v", i, err)
		}
		r.sender.Wait()
	})
}

func TestWriteIsGivenUpAfterThreeAttemptsAndEachSendAfterOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		var took []time.Duration
		_, open, err := sending.Once(t.Context(), r.sender, sending.Write, func(ctx context.Context) (int, error) {
			began := time.Now()
			i, err := r.send(ctx)
			r.mu.Lock()
			defer r.mu.Unlock()
			took = append(took, time.Since(began))
			return i, err
		})
		if !open || !errors.Is(err, context.DeadlineExceeded) || time.Since(r.began) != 12*time.Second {
			t.Errorf("after %v: open %v, %v", time.Since(r.began), open, err)
		}
		r.ended(again(1, 250*ms, 625*ms, 1187500*us, 2031250*us, 3296875*us, 5195312500, 8042968750, 11792968750)...)
		if most := slices.Max(took); most != 4*time.Second {
			t.Errorf("a send took %v", most)
		}
	})
}

// What no caller waits for adds nothing to the load of a slow etcd.
func TestUnhurriedRequestIsSentOnceAndGivenUpAfterOneAttempt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3)
		_, open, err := r.once(t.Context(), sending.Unhurried)
		if !open || !errors.Is(err, context.DeadlineExceeded) || time.Since(r.began) != 4*time.Second {
			t.Errorf("after %v: open %v, %v", time.Since(r.began), open, err)
		}
		r.ended(0)
	})
}

// etcd's client might repeat a write that a member has too long.
func TestWhatMayBeAWriteHasOneAttemptForEachSend(t *testing.T) {
	for k, want := range map[sending.Kind]time.Duration{
		sending.Grant: 4 * time.Second, sending.Write: 4 * time.Second, sending.Unhurried: 4 * time.Second,
		sending.Renewal: 12 * time.Second, sending.Proof: 12 * time.Second, sending.Read: 12 * time.Second,
	} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 1)
			var first atomic.Int64
			_, _, err := sending.Once(t.Context(), r.sender, k, func(ctx context.Context) (int, error) {
				began := time.Now()
				i, err := r.send(ctx)
				if i == 0 {
					first.Store(int64(time.Since(began)))
				}
				return i, err
			})
			r.sender.Wait()
			if took := time.Duration(first.Load()); took != want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("kind %d: the first send took %v, want %v: %v", k, took, want, err)
			}
		})
	}
}

func TestReadIsGivenUpAfterThreeAttempts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		_, _, err := sending.Once(t.Context(), r.sender, sending.Proof, r.send)
		const want = "no reply within 12s, sent 6 times"
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
		r.ended(again(1, 250*ms, 1000*ms, 3250*ms, 7000*ms, 10750*ms)...)
	})
}

func TestOnceEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3, reply{10 * ms, nil}, hangs, hangs)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, open, err := r.once(ctx, sending.Read); open || err != nil {
			t.Errorf("open %v, %v", open, err)
		}
		began := time.Now()
		if _, open, err := r.once(ctx, sending.Write); !open || err != context.DeadlineExceeded ||
			time.Since(began) != 990*ms {
			t.Errorf("after %v: open %v, %v", time.Since(began), open, err)
		}
		sent := len(r.at)
		if _, open, err := r.once(ctx, sending.Write); open || !errors.Is(err, context.DeadlineExceeded) ||
			len(r.at) != sent {
			t.Errorf("on a dead context: open %v, %v, %d sent", open, err, len(r.at)-sent)
		}
		r.sender.Wait()
	})
}

func TestOnceEndsWithItsContextAfterTheFirstSendHasFailed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1, reply{300 * ms, unavailable})
		ctx, cancel := context.WithTimeout(t.Context(), 600*ms)
		defer cancel()
		if _, open, err := r.once(ctx, sending.Write); !open || !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, unavailable) {
			t.Errorf("open %v, %v", open, err)
		}
		r.ended(0, 250*ms)
	})
}

// Nothing is left in flight, and etcd has refused it: the outcome is known, though the caller has gone.
func TestRefusalThatComesAfterTheContextsEndIsTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		_, open, err := sending.Once(ctx, r.sender, sending.Write, func(context.Context) (int, error) {
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
		i, err := sending.Ask(t.Context(), r.sender, sending.Read, r.send)
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
	cli := clientv3.NewCtxClient(t.Context())
	s := sending.New(cli, backoff.Policy{Attempt: time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	op := func(context.Context) (int, error) { return 0, nil }
	const most = 10
	if n := testing.AllocsPerRun(100, func() { _, _, _ = sending.Once(ctx, s, sending.Write, op) }); n > most {
		t.Errorf("%v allocations, want at most %d", n, most)
	} else {
		t.Logf("%v allocations", n)
	}
}
