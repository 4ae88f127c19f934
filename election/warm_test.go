package election_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/view"
)

func TestCandidateWarmsUpWhileItIsQueuedAndLeadsAfterThat(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		leader := campaign(t, s.other(t), "leader")
		began, warm := make(chan struct{}), make(chan struct{})
		var warmed time.Time
		var lives context.Context
		el := s.election().With(opts{Value: "v", Warm: func(ctx context.Context, elected <-chan struct{}) error {
			close(began)
			lives = ctx
			<-elected // follows until then
			time.Sleep(10 * time.Second)
			warmed = time.Now()
			close(warm)
			return nil
		}})
		ran := later(func() error {
			return el.RunWhileLeader(deadline(t), func(context.Context, *election.Term) error {
				if time.Since(warmed) != 0 || lives.Err() != nil {
					t.Errorf("the function begins %v after Warm, whose context: %v", time.Since(warmed), lives.Err())
				}
				return nil
			})
		})
		await(t, "Warm begins", began)
		time.Sleep(time.Minute)
		if len(s.entries()) != 2 {
			t.Errorf("it is not queued: %v", s.entries())
		}
		resign(t, leader)
		await(t, "Warm ends", warm)
		if err := await(t, "the term ends", ran); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if lives.Err() == nil {
			t.Error("the context of Warm outlives the term")
		}
	})
}

func TestEachCampaignWarmsUpAnew(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		running, calls := false, 0
		ctx, cancel := context.WithCancel(t.Context())
		el := s.election().With(opts{Value: "v", Warm: func(context.Context, <-chan struct{}) error {
			if calls++; running {
				t.Error("Warm runs beside the function")
			}
			return nil
		}})
		err := el.Run(ctx, func(ctx context.Context, term *election.Term) error {
			running = true
			defer func() { running = false }()
			if calls == 3 {
				cancel()
				return nil
			}
			s.srv.Revoke(term.Lease())
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		})
		if !errors.Is(err, context.Canceled) || calls != 3 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

func TestErrorOfWarmEndsTheCampaignAndIsReturned(t *testing.T) {
	for name, queued := range map[string]bool{"while it is queued": true, "when it leads": false} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *sim) {
				entries := 0
				if queued {
					campaign(t, s.other(t), "leader")
					entries = 1
				}
				el := s.election().With(opts{Value: "v", Warm: func(_ context.Context, elected <-chan struct{}) error {
					if !queued {
						<-elected
					}
					time.Sleep(time.Minute)
					return errWork
				}})
				start := time.Now()
				err := el.Run(deadline(t), func(context.Context, *election.Term) error {
					t.Error("the function was called")
					return nil
				})
				if took := time.Since(start); took > time.Minute+time.Second {
					t.Errorf("Run returned after %v", took)
				}
				var failed *view.AcquireError
				if !errors.Is(err, errWork) || !errors.As(err, &failed) {
					t.Errorf("Run returned %v", err)
				}
				if len(s.entries()) != entries {
					t.Errorf("entries %v", s.entries())
				}
			})
		})
	}
}

// The term is lost while Warm runs, and its context ends: the next campaign begins.
func TestTermThatIsLostWhileItWarmsUpCallsNoFunction(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		calls := 0
		el := s.election().With(opts{Value: "v", Warm: func(ctx context.Context, elected <-chan struct{}) error {
			<-elected
			if calls++; calls == 1 {
				s.srv.Revoke(s.sess.Lease())
				<-ctx.Done()
			}
			return ctx.Err()
		}})
		err := el.RunWhileLeader(deadline(t), func(_ context.Context, term *election.Term) error {
			if calls != 2 || term.Check() != nil {
				t.Errorf("the function was called after %d calls of Warm: %v", calls, term.Check())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestWarmThatIgnoresItsContextKeepsRunForDrainTimeout(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		finish := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		el := s.election().With(opts{Value: "v", DrainTimeout: 7 * time.Second,
			Warm: func(context.Context, <-chan struct{}) error { <-finish; return nil }})
		time.AfterFunc(time.Minute, cancel)
		start := time.Now()
		err := el.Run(ctx, func(context.Context, *election.Term) error { t.Error("called"); return nil })
		if took := time.Since(start); !errors.Is(err, election.ErrNotDrained) || took != time.Minute+7*time.Second {
			t.Errorf("Run returned %v after %v", err, took)
		}
		if len(s.entries()) != 0 {
			t.Errorf("entries %v", s.entries())
		}
		close(finish)
	})
}

// The call has returned, and Warm has not: what the next call prepares and does must not run beside it.
func TestNextCallWaitsForAWarmThatIgnoresItsContext(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		finish := make(chan struct{})
		el := s.election().With(opts{DrainTimeout: time.Second,
			Warm: func(context.Context, <-chan struct{}) error { <-finish; return nil }})
		err := el.RunWhileLeader(within(t, time.Second), func(context.Context, *election.Term) error { return nil })
		if !errors.Is(err, election.ErrNotDrained) {
			t.Fatal(err)
		}
		called := make(chan struct{})
		next := later(func() error {
			return s.election().RunWhileLeader(deadline(t), func(context.Context, *election.Term) error {
				close(called)
				return nil
			})
		})
		time.Sleep(time.Minute)
		select {
		case <-called:
			t.Error("the function of the next call runs beside Warm")
		default:
		}
		close(finish)
		if err := await(t, "the next call leads", next); err != nil {
			t.Error(err)
		}
	})
}

// A leader that was asked to let go keeps its entry until its work has ended, and Warm is a part of that.
func TestWarmThatIgnoresAKickKeepsTheNameForDrainTimeout(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		finish, began := make(chan struct{}), make(chan struct{})
		el := s.election().With(opts{Value: "v", DrainTimeout: 7 * time.Second,
			Warm: func(_ context.Context, elected <-chan struct{}) error {
				<-elected
				close(began)
				<-finish
				return nil
			}})
		ran := later(func() error {
			return el.Run(t.Context(), func(context.Context, *election.Term) error { t.Error("called"); return nil })
		})
		await(t, "Warm begins", began)
		next := later(func() error { campaign(t, s.other(t), "next"); return nil })
		adm := admin.New(s.srv.Client(t), admin.Options{})
		q, err := adm.Show(t.Context(), holdfast.KindElection, el.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := adm.Kick(t.Context(), holdfast.KindElection, el.Name(), q.Entries[0].Token, "maintenance"); err != nil {
			t.Fatal(err)
		}
		if err := await(t, "Run ends", ran); !errors.Is(err, election.ErrNotDrained) || !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Run returned %v", err)
		}
		if err := await(t, "the next leads", next); err != nil {
			t.Error(err)
		}
		close(finish)
	})
}

// Two calls on one session: what each prepares and does never overlaps.
func TestWarmNeverRunsBesideAFunctionOfItsSession(t *testing.T) {
	for name, warms := range map[string]bool{"both warm up": true, "one warms up": false} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *sim) {
				var functions, warm atomic.Int32
				with := s.election().With(opts{Warm: func(_ context.Context, elected <-chan struct{}) error {
					warm.Add(1)
					defer warm.Add(-1)
					time.Sleep(5 * time.Second)
					if functions.Load() > 0 {
						t.Error("Warm runs beside a function")
					}
					return nil
				}})
				other := with
				if !warms {
					other = s.election()
				}
				lead := func(el *election.Election) <-chan error {
					return later(func() error {
						for range 3 {
							err := el.WithValue("v").RunWhileLeader(deadline(t), func(context.Context, *election.Term) error {
								functions.Add(1)
								defer functions.Add(-1)
								time.Sleep(10 * time.Second)
								if warm.Load() > 0 {
									t.Error("a function runs beside Warm")
								}
								return nil
							})
							if err != nil {
								return err
							}
						}
						return nil
					})
				}
				for _, done := range []<-chan error{lead(with), lead(other)} {
					if err := await(t, "three terms of each", done); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

func TestTermInsideAFunctionWithWarmIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election().With(opts{Value: "v", Warm: func(context.Context, <-chan struct{}) error { return nil }})
		err := el.RunWhileLeader(deadline(t), func(ctx context.Context, _ *election.Term) error {
			return el.RunWhileLeader(ctx, func(context.Context, *election.Term) error { return nil })
		})
		if !errors.Is(err, holdfast.ErrReentrant) {
			t.Errorf("%v", err)
		}
	})
}
