package requests_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

func TestFirstSendMayStillWin(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3, reply{after: 400 * ms})
		i, open, err := r.once(t.Context(), requests.Write)
		if i != 0 || !open || err != nil {
			t.Errorf("send %d, open %v, %v", i, open, err)
		}
		r.ended(again(3, 250*ms)...)
	})
}

// Both copies of a write were carried out and answered at the same moment. The reply that is returned may be that
// of the second copy, whose comparisons failed because of the first.
func TestReplyAfterTheWinnersLeavesTheOutcomeUnknown(t *testing.T) {
	for want, late := range map[bool]error{true: nil, false: denied} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 1)
			var sends atomic.Int64
			i, open, err := requests.Once(t.Context(), r.sender, requests.Write, func(ctx context.Context) (int64, error) {
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

// The copy beside the winner takes a moment to notice that it is canceled. Its call waits for it, and knows then
// whether it may be carried out yet.
func TestCallEndsAfterItsCopies(t *testing.T) {
	for want, late := range map[bool]error{true: unavailable, false: refused} {
		bubble.Test(t, func(t *testing.T) {
			r := newRequests(t, 1)
			var sends, ended atomic.Int64
			i, open, err := requests.Once(t.Context(), r.sender, requests.Write, func(ctx context.Context) (int64, error) {
				defer ended.Add(1)
				n := sends.Add(1)
				if n == 1 {
					time.Sleep(400 * ms)
					return n, nil
				}
				<-ctx.Done()
				time.Sleep(ms)
				return n, late
			})
			if i != 1 || open != want || err != nil || ended.Load() != 2 {
				t.Errorf("send %d won, open %v, %v; %d of 2 sends have ended", i, open, err, ended.Load())
			}
		})
	}
}

// A transient error says nothing about the sends in flight; a verdict of etcd does.
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
		"refused, then unavailable": {
			[]reply{{300 * ms, refused}, {100 * ms, unavailable}}, 0, true, refused,
		},
		"unavailable, then refused": {
			[]reply{{400 * ms, unavailable}, {300 * ms, refused}}, 1, true, refused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := newRequests(t, 1, c.replies...)
				i, open, err := r.once(t.Context(), requests.Write)
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
		for k, want := range map[requests.Kind]etcderr.Class{
			requests.Write: etcderr.Transient, requests.Read: etcderr.Transient, requests.Proof: etcderr.Transient,
			requests.Renewal: etcderr.Unknown,
		} {
			r := newRequests(t, 3, reply{0, rpctypes.ErrNoLeader})
			_, open, err := r.once(t.Context(), k)
			if etcderr.Classify(err) != want || open != (want == etcderr.Unknown) || !errors.Is(err, rpctypes.ErrNoLeader) {
				t.Errorf("kind %d: class %v, open %v, %v", k, etcderr.Classify(err), open, err)
			}
		}
	})
}

func TestPanicOfTheFirstSendEndsTheRace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRequests(t, 3)
		func() {
			defer func() { _ = recover() }()
			_, _, _ = requests.Once(t.Context(), r.sender, requests.Read, func(context.Context) (int, error) { panic("x") })
		}()
		time.Sleep(time.Minute)
		r.ended()
	})
}
