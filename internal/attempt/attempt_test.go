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

func TestQuestionGoesToAMajorityAtOnceBesideTheSendThatHangs(t *testing.T) {
	for endpoints, want := range map[int][]time.Duration{
		1: {0, 150 * ms, 600 * ms, 2600 * ms},
		3: {0, 150 * ms, 150 * ms, 600 * ms, 600 * ms, 2600 * ms, 2600 * ms},
		5: {0, 150 * ms, 150 * ms, 150 * ms, 600 * ms, 600 * ms, 600 * ms, 2600 * ms, 2600 * ms, 2600 * ms},
	} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, endpoints)
			r.replies = slices.Repeat([]reply{hangs}, len(want)-1)
			r.replies = append(r.replies, reply{after: 5 * ms})
			i, open, err := r.once(t.Context(), attempt.Read)
			if i != len(want)-1 || !open || err != nil || time.Since(r.began) != 2605*ms {
				t.Errorf("%d endpoints: send %d won after %v, open %v, %v", endpoints, i, time.Since(r.began), open, err)
			}
			r.ended(want...)
			if r.cancelled != len(want)-1 {
				t.Errorf("%d endpoints: %d of %d losers cancelled", endpoints, r.cancelled, len(want)-1)
			}
		})
	}
}

func TestWriteIsSentAgainOneAtATimeAndThreeTimesAtMost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3)
		_, open, err := r.once(t.Context(), attempt.Write)
		if !open || !errors.Is(err, context.DeadlineExceeded) || time.Since(r.began) != 5500*ms {
			t.Errorf("after %v: open %v, %v; each is to be given up after 4 s", time.Since(r.began), open, err)
		}
		r.ended(0, 500*ms, 1000*ms, 1500*ms)
	})
}

func TestQuestionIsGivenUpAfterThreeAttempts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 1)
		_, _, err := r.once(t.Context(), attempt.Proof)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 12s, sent 8 times") {
			t.Error(err)
		}
		r.ended(0, 250*ms, time.Second, 3*time.Second, 5*time.Second, 7*time.Second, 9*time.Second, 11*time.Second)
	})
}

func TestFirstSendMayStillWin(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3, reply{after: 700 * ms})
		i, open, err := r.once(t.Context(), attempt.Write)
		if i != 0 || !open || err != nil {
			t.Errorf("send %d, open %v, %v", i, open, err)
		}
		r.ended(0, 500*ms)
	})
}

// Both copies of a write were carried out, and the answers come in the same moment.
// The one that is returned may be that of the second copy, whose comparisons have
// failed because of the first.
func TestAnswerBesideTheOneThatWonLeavesTheOutcomeOpen(t *testing.T) {
	for want, late := range map[bool]error{true: nil, false: denied} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 3)
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
		sent    []time.Duration
	}{
		"first refused, second succeeds": {
			[]reply{{600 * ms, refused}, {200 * ms, nil}}, 1, false, nil, []time.Duration{0, 500 * ms},
		},
		"second refused, first succeeds": {
			[]reply{{700 * ms, nil}, {10 * ms, refused}}, 0, false, nil, []time.Duration{0, 500 * ms},
		},
		"second unavailable, first succeeds": {
			[]reply{{700 * ms, nil}, {10 * ms, unavailable}}, 0, true, nil, []time.Duration{0, 500 * ms},
		},
		"second denied": {
			[]reply{hangs, {10 * ms, denied}}, 1, true, denied, []time.Duration{0, 500 * ms},
		},
		"second's lease is gone": {
			[]reply{{700 * ms, unavailable}, {300 * ms, rpctypes.ErrLeaseNotFound}}, 1, true, rpctypes.ErrLeaseNotFound, []time.Duration{0, 500 * ms},
		},
		"all refused": {
			[]reply{{700 * ms, refused}, {10 * ms, refused}}, 0, false, refused, []time.Duration{0, 500 * ms},
		},
		"unavailable, then refused": {
			[]reply{{700 * ms, unavailable}, {300 * ms, refused}}, 1, true, refused, []time.Duration{0, 500 * ms},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRequests(t, 3, c.replies...)
				i, open, err := r.once(t.Context(), attempt.Write)
				if i != c.winner || open != c.open || err != c.err {
					t.Errorf("send %d, open %v, %v; want %d, %v, %v", i, open, err, c.winner, c.open, c.err)
				}
				r.ended(c.sent...)
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
			{[]reply{{400 * ms, nil}}, []time.Duration{0}},
			{[]reply{{700 * ms, denied}}, []time.Duration{0}},                                 // within twice 400 ms; an answer, too
			{[]reply{{1300 * ms, nil}}, []time.Duration{0}},                                   // within twice 700 ms
			{[]reply{hangs, {5 * ms, refused}, {5 * ms, nil}}, []time.Duration{0, 2600 * ms}}, // no answer: nothing is learnt
			{[]reply{hangs, {5 * ms, nil}}, []time.Duration{0, 2600 * ms}},                    // from its own send to its answer
			{nil, []time.Duration{0, 500 * ms, 1000 * ms, 1500 * ms}},                         // the base again
			{[]reply{{400 * ms, nil}}, []time.Duration{0}},
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
		r := newRequests(t, 3, reply{600 * ms, unavailable})
		ctx, cancel := context.WithTimeout(t.Context(), 900*ms)
		defer cancel()
		if _, open, err := r.once(ctx, attempt.Write); !open || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, unavailable) {
			t.Errorf("open %v, %v", open, err)
		}
		r.ended(0, 500*ms)
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
