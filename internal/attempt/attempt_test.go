package attempt_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	unavailable = rpctypes.ErrStopped // may have been carried out
	refused     = rpctypes.ErrTooManyRequests
	denied      = rpctypes.ErrPermissionDenied
)

const ms = time.Millisecond

// reply is how a send ends: after a time, unless its context ends before.
type reply struct {
	after time.Duration // less than 0: never
	err   error
}

var hangs = reply{after: -1}

// requests plays the cluster: send i gets reply i, all after the last one hang.
type requests struct {
	t       *testing.T
	sender  *attempt.Sender
	replies []reply

	mu        sync.Mutex // protects what follows
	began     time.Time
	at        []time.Duration // when each send was made
	cancelled int
}

func newRequests(t *testing.T, endpoints int, replies ...reply) *requests {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: slices.Repeat([]string{"127.0.0.1:1"}, endpoints)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return &requests{t: t, sender: attempt.New(cli, backoff.Policy{Attempt: 4 * time.Second}), replies: replies, began: time.Now()}
}

func (r *requests) send(ctx context.Context) (int, error) {
	r.mu.Lock()
	i := len(r.at)
	r.at = append(r.at, time.Since(r.began))
	reply := hangs
	if i < len(r.replies) {
		reply = r.replies[i]
	}
	r.mu.Unlock()
	if _, ok := ctx.Deadline(); ok {
		r.t.Error("a deadline would go to the server")
	}
	if md, _ := metadata.FromOutgoingContext(ctx); !slices.Equal(md.Get(rpctypes.MetadataRequireLeaderKey), []string{rpctypes.MetadataHasLeader}) {
		r.t.Errorf("no leader is required: %v", md)
	}
	var answered <-chan time.Time
	if reply.after >= 0 {
		answered = time.After(reply.after)
	}
	select {
	case <-answered:
		return i, reply.err
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cancelled++
		return i, ctx.Err()
	}
}

func (r *requests) once(ctx context.Context, k attempt.Kind) (i int, open bool, err error) {
	return attempt.Once(ctx, r.sender, k, r.send)
}

// ended checks that nothing is under way any more, and when the sends were made.
func (r *requests) ended(sent ...time.Duration) {
	r.t.Helper()
	r.sender.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.at, sent) {
		r.t.Errorf("sent at %v, want %v", r.at, sent)
	}
}

func TestRequestThatIsAnsweredIsSentOnce(t *testing.T) {
	for _, err := range []error{nil, denied, rpctypes.ErrLeaseNotFound, rpctypes.ErrNoSpace, refused, unavailable} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 3, reply{10 * ms, err})
			_, open, got := r.once(t.Context(), attempt.Write)
			if got != err || open != (err == unavailable) {
				t.Errorf("%v: got %v, open %v", err, got, open)
			}
			time.Sleep(time.Minute)
			r.ended(0)
		})
	}
}

// again lists when a request is sent: once at first, then to each endpoint at
// each of the times after.
func again(endpoints int, after ...time.Duration) []time.Duration {
	sent := []time.Duration{0}
	for _, at := range after {
		sent = append(sent, slices.Repeat([]time.Duration{at}, endpoints)...)
	}
	return sent
}

func TestRequestGoesToEachEndpointAtOnceBesideTheSendThatHangs(t *testing.T) {
	for k, after := range map[attempt.Kind][]time.Duration{
		attempt.Read:  {150 * ms, 375 * ms, 712500 * time.Microsecond},
		attempt.Write: {250 * ms, 625 * ms, 1187500 * time.Microsecond},
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
				if r.cancelled != len(want)-1 {
					t.Errorf("%d endpoints: %d of %d losers cancelled", endpoints, r.cancelled, len(want)-1)
				}
			})
		}
	}
}

// roundRobin plays a client of some members, of which one hangs.
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

// A caller that sends one request after the other must not meet the member that
// hangs each time, because its repeats turn the wheel back to it.
func TestRepeatsDoNotTurnTheWheelBackToTheMemberThatHangs(t *testing.T) {
	for _, members := range []int{2, 3, 4, 5, 7} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, members)
			c := &roundRobin{members: int64(members)}
			const requests = 100
			slow := 0
			for range requests * members {
				began := time.Now()
				if _, _, err := attempt.Once(t.Context(), r.sender, attempt.Write, c.send); err != nil {
					t.Fatal(err)
				}
				if time.Since(began) > ms {
					slow++
				}
			}
			r.sender.Wait()
			if slow != requests {
				t.Errorf("%d members: %d of %d requests met the one that hangs first, want %d", members, slow, requests*members, requests)
			}
		})
	}
}

func TestWriteIsGivenUpAfterThreeAttemptsAndEachSendAfterOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		var took []time.Duration
		_, open, err := attempt.Once(t.Context(), r.sender, attempt.Write, func(ctx context.Context) (int, error) {
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
		r.ended(0, 250*ms, 625*ms, 1187500*time.Microsecond, 2031250*time.Microsecond, 3296875*time.Microsecond,
			5195312500*time.Nanosecond, 8042968750*time.Nanosecond)
		if most := slices.Max(took); most != 4*time.Second {
			t.Errorf("a send took %v", most)
		}
	})
}

func TestQuestionIsGivenUpAfterThreeAttempts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		_, _, err := attempt.Once(t.Context(), r.sender, attempt.Proof, r.send)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 12s, sent 10 times") {
			t.Error(err)
		}
		r.ended(0, 250*ms, 625*ms, 1187500*time.Microsecond, 2031250*time.Microsecond, 3296875*time.Microsecond,
			5195312500*time.Nanosecond, 7195312500*time.Nanosecond, 9195312500*time.Nanosecond, 11195312500*time.Nanosecond)
	})
}

func TestFirstSendMayStillWin(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3, reply{after: 400 * ms})
		i, open, err := r.once(t.Context(), attempt.Write)
		if i != 0 || !open || err != nil {
			t.Errorf("send %d, open %v, %v", i, open, err)
		}
		r.ended(again(3, 250*ms)...)
	})
}

// Both copies of a write were carried out, and the answers come in the same moment.
// The one that is returned may be that of the second copy, whose comparisons have
// failed because of the first.
func TestAnswerBesideTheOneThatWonLeavesTheOutcomeOpen(t *testing.T) {
	for want, late := range map[bool]error{true: nil, false: denied} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 1)
			var sends atomic.Int64
			i, open, err := attempt.Once(t.Context(), r.sender, attempt.Write, func(ctx context.Context) (int64, error) {
				n := sends.Add(1)
				if n == 1 {
					<-ctx.Done() // the second has won
					return n, late
				}
				return n, nil
			})
			if i != 2 || open != want || err != nil {
				t.Errorf("send %d won, open %v, %v; the first was answered with %v", i, open, err, late)
			}
		})
	}
}

// An error that passes says nothing of the sends that are under way; a verdict
// of etcd does.
func TestOnlyAVerdictEndsARaceBeforeItsLastSend(t *testing.T) {
	for name, c := range map[string]struct {
		replies []reply
		winner  int
		open    bool
		err     error
	}{
		"first refused, second succeeds": {
			[]reply{{300 * ms, refused}, {200 * ms, nil}}, 1, false, nil,
		},
		"second refused, first succeeds": {
			[]reply{{400 * ms, nil}, {10 * ms, refused}}, 0, false, nil,
		},
		"second unavailable, first succeeds": {
			[]reply{{400 * ms, nil}, {10 * ms, unavailable}}, 0, true, nil,
		},
		"second denied": {
			[]reply{hangs, {10 * ms, denied}}, 1, true, denied,
		},
		"second's lease is gone": {
			[]reply{{400 * ms, unavailable}, {300 * ms, rpctypes.ErrLeaseNotFound}}, 1, true, rpctypes.ErrLeaseNotFound,
		},
		"all refused": {
			[]reply{{400 * ms, refused}, {10 * ms, refused}}, 0, false, refused,
		},
		"unavailable, then refused": {
			[]reply{{400 * ms, unavailable}, {300 * ms, refused}}, 1, true, refused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRequests(t, 1, c.replies...)
				i, open, err := r.once(t.Context(), attempt.Write)
				if i != c.winner || open != c.open || err != c.err {
					t.Errorf("send %d, open %v, %v; want %d, %v, %v", i, open, err, c.winner, c.open, c.err)
				}
				r.ended(0, 250*ms)
			})
		})
	}
}

func TestNoLeaderIsARefusalOfASingleRequest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for k, want := range map[attempt.Kind]etcderr.Class{
			attempt.Write: etcderr.Transient, attempt.Read: etcderr.Transient, attempt.Proof: etcderr.Transient, attempt.Renewal: etcderr.Unknown,
		} {
			r := newRequests(t, 3, reply{0, rpctypes.ErrNoLeader})
			_, open, err := r.once(t.Context(), k)
			if etcderr.Classify(err) != want || open != (want == etcderr.Unknown) || !errors.Is(err, rpctypes.ErrNoLeader) {
				t.Errorf("kind %d: class %v, open %v, %v", k, etcderr.Classify(err), open, err)
			}
		}
	})
}

func TestPauseIsTwiceTheLatestAnswer(t *testing.T) {
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
			{[]reply{{350 * ms, denied}}, []time.Duration{0}},                                            // within twice 200 ms; an answer, too
			{[]reply{{650 * ms, nil}}, []time.Duration{0}},                                               // within twice 350 ms
			{[]reply{hangs, {5 * ms, refused}, {5 * ms, nil}}, []time.Duration{0, 1300 * ms, 3250 * ms}}, // a refusal is no answer
			{[]reply{hangs, {5 * ms, nil}}, []time.Duration{0, 250 * ms}},                                // 5 ms: from its own send to its answer
			{[]reply{{1400 * ms, nil}}, again(1, 250*ms, 625*ms, 1187500*time.Microsecond)},
			{nil, []time.Duration{0, 2800 * ms}},
			{[]reply{{2700 * ms, nil}}, []time.Duration{0}}, // what was not answered has taught nothing
		} {
			if got := send(c.replies...); !slices.Equal(got, c.want) {
				t.Errorf("%v: sent at %v, want %v", c.replies, got, c.want)
			}
		}
	})
}

func TestOnceEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3, reply{10 * ms, nil}, hangs, hangs)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, open, err := r.once(ctx, attempt.Read); open || err != nil {
			t.Errorf("open %v, %v", open, err)
		}
		began := time.Now()
		if _, open, err := r.once(ctx, attempt.Write); !open || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 990*ms {
			t.Errorf("after %v: open %v, %v", time.Since(began), open, err)
		}
		sent := len(r.at)
		if _, open, err := r.once(ctx, attempt.Write); open || !errors.Is(err, context.DeadlineExceeded) || len(r.at) != sent {
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
		if _, open, err := r.once(ctx, attempt.Write); !open || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, unavailable) {
			t.Errorf("open %v, %v", open, err)
		}
		r.ended(0, 250*ms)
	})
}

func TestAskRepeatsWithPausesWhatPasses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3, reply{0, unavailable}, reply{0, rpctypes.ErrNoLeader}, reply{0, refused}, reply{0, nil})
		i, err := attempt.Ask(t.Context(), r.sender, attempt.Read, r.send)
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

func TestPanicOfTheFirstSendEndsTheRace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3)
		func() {
			defer func() { _ = recover() }()
			_, _, _ = attempt.Once(t.Context(), r.sender, attempt.Read, func(context.Context) (int, error) { panic("x") })
		}()
		time.Sleep(time.Minute)
		r.ended()
	})
}

func TestOnceCostsATimerAndAContext(t *testing.T) {
	cli := clientv3.NewCtxClient(t.Context())
	s := attempt.New(cli, backoff.Policy{Attempt: time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	op := func(context.Context) (int, error) { return 0, nil }
	const most = 10
	if n := testing.AllocsPerRun(100, func() { _, _, _ = attempt.Once(ctx, s, attempt.Write, op) }); n > most {
		t.Errorf("%v allocations, want at most %d", n, most)
	} else {
		t.Logf("%v allocations", n)
	}
}
