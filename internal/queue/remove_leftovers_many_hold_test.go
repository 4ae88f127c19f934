package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// giveUpMany makes n attempts, each for another name, and gives each up after d.
func giveUpMany(t *testing.T, p *holdtest.Process, n int, d time.Duration) {
	t.Helper()
	var all sync.WaitGroup
	room := make(chan struct{}, 100)
	for i := range n {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			if h, err := hold.Acquire(ctx, p.Queue(fmt.Sprint("n", i)), hold.Request{}); err == nil {
				_ = h.Release(context.Background())
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Of the puts some never arrive, some are carried out, and some arrive long after their
// attempts have ended. None is answered.
func TestTenThousandAttemptsGivenUpInSilenceLeaveTheSessionKeyAlone(t *testing.T) {
	n := 10_000
	if testing.Short() || bubble.Race { // the race detector makes it ten times slower
		n = 500
	}
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		p.Plan(func(kind string, n int) etcdfake.Fate {
			switch {
			case kind != "enqueue":
				return etcdfake.Fate{}
			case n%3 == 0:
				return etcdfake.Fate{Request: 2 * time.Minute}
			default:
				return etcdfake.Fate{LoseRequest: n%3 == 1, LoseReply: true, Silent: true}
			}
		})
		giveUpMany(t, p, n, 20*time.Millisecond)
		time.Sleep(10 * time.Minute)
		if kvs := srv.Keys(""); len(kvs) != 1 || string(kvs[0].Key) != p.SessionKey() {
			t.Errorf("%d keys stand, want the session key alone", len(kvs))
		}
		if put := kit.PutsEver(srv, "holdfast/lock/"); put < n/10 || put > n-n/10 {
			t.Errorf("%d puts of %d attempts were carried out: this tests only one kind", put, n)
		}
		if n := p.Queue("x").Used(); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

func TestAttemptsWithADeadlineBelowTheRoundTripLeaveNothingAndNoPutOfTheSessionKey(t *testing.T) {
	const n = 300
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		giveUpMany(t, p, n, kit.OneWay+time.Millisecond)
		time.Sleep(4 * kit.OneWay)
		kit.NothingStands(t, srv)
		if put := kit.PutsEver(srv, "holdfast/lock/"); put != n {
			t.Errorf("%d entries were put, want %d", put, n)
		}
		time.Sleep(time.Minute)
		if n := p.GateMoves(srv); n != 0 {
			t.Errorf("the session key was put again %d times although all was answered", n)
		}
	})
}

// Each put of the session key refuses all puts that are in flight.
func TestOthersGetInWhileAThirdOfAllRequestsIsNotAnswered(t *testing.T) {
	for _, loss := range []etcdfake.Fate{{LoseRequest: true, Silent: true}, {LoseReply: true, Silent: true},
		{LoseReply: true}} {
		t.Run(fmt.Sprintf("%+v", loss), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				p.Link.Delay(100 * time.Millisecond)
				var mu sync.Mutex // protects r
				r := rand.New(rand.NewPCG(1, 2))
				p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					mu.Lock()
					defer mu.Unlock()
					if kind := kit.KindOf(c); kind == "event" || c.Method == "LeaseKeepAlive" || r.IntN(3) > 0 {
						return etcdfake.Fate{}
					}
					return loss
				})
				stop, end := context.WithCancel(t.Context()) // also after a failure: closed sessions refuse at once
				defer end()
				var busy sync.WaitGroup
				for i := range 8 {
					busy.Go(func() {
						for n := 0; stop.Err() == nil; n++ {
							ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
							if h, err := hold.Acquire(ctx, p.Queue(fmt.Sprintf("busy%d-%d", i, n)), hold.Request{}); err == nil {
								_ = h.Release(context.Background())
							}
							cancel()
						}
					})
				}
				// Copies must be paid for, and callers stand in line for theirs: see package requests. One attempt of 16 takes more
				// than 5 s, one of 70 more than 10 s, one of 400 more than 15 s: of 3,300 one took 35 s.
				const most = 90 * time.Second
				for i := range 15 {
					began := time.Now()
					h, err := hold.Acquire(kit.Within(t, 2*time.Minute), p.Queue(fmt.Sprint("other", i)), hold.Request{})
					if took := time.Since(began); err != nil || took > most {
						t.Fatalf("attempt %d: after %v: %v", i, took, err)
					}
					go func() { _ = h.Release(context.Background()) }() // ends when the test heals the link
				}
				end()
				busy.Wait()
				p.Heal()
				time.Sleep(time.Minute)
				kit.NothingStands(t, srv)
				t.Logf("the session key was put again %d times", p.GateMoves(srv))
			})
		})
	}
}
