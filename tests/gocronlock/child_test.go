package gocronlock_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/contrib/gocronlock"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// job is what a child does: it runs a scheduler with one job that is due each minute of a clock that stands until the
// parent moves it on.
type job struct {
	Endpoints []string
	TTL       time.Duration
	MinHold   time.Duration
	Elector   bool // else a Locker
}

// event is what a child reports: "ready", "ran", "skipped", "ended" (a run that was told to last), "leads".
type event struct {
	Token int64
	Err   string
	Lost  bool // Err is a *holdfast.LostError
	Held  bool // Err is locker.ErrLocked
}

// The orders of the parent.
const (
	tick      = "tick"      // the next minute begins
	tickLong  = "tick long" // the same, and the run lasts until its context ends
	awaitLead = "await lead"
)

// scheduler is a child.
type scheduler struct {
	parent *child.Parent[event]
	clock  *clockwork.FakeClock
	long   atomic.Bool // the run that is due lasts until its context ends
}

func runScheduler(ctx context.Context, _ string, j job, parent *child.Parent[event]) error {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil))) // stderr fails the test
	cli, err := session.NewClient(ctx, session.ClientConfig(j.Endpoints...))
	if err != nil {
		return err
	}
	sess, err := session.New(ctx, cli, &session.Options{TTL: j.TTL})
	if err != nil {
		return err
	}
	s := &scheduler{
		parent: parent,
		clock:  clockwork.NewFakeClockAt(time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)),
	}
	var leader elector
	var task gocron.Task
	var distributed gocron.SchedulerOption
	if j.Elector {
		leader.say = s.say
		o := &gocronlock.ElectorOptions{Settle: time.Millisecond}
		leader.Elector, err = gocronlock.NewElector(election.New(sess, "cron"), o)
		if err != nil {
			return err
		}
		go func() { _ = leader.Run(ctx) }() // ends with the process
		if err := awaitEntry(ctx, sess); err != nil {
			return err
		}
		task = leader.Task(func(ctx context.Context, term *election.Term) error { return s.run(ctx, term) })
		distributed = gocron.WithDistributedElector(leader)
	} else {
		l, err := gocronlock.NewLocker(sess, &gocronlock.LockerOptions{MinHold: j.MinHold, Timeout: j.MinHold / 2})
		if err != nil {
			return err
		}
		task = l.Task("report", func(ctx context.Context, lk *locker.Lock) error { return s.run(ctx, lk) })
		distributed = gocron.WithDistributedLocker(l)
	}
	cron, err := gocron.NewScheduler(distributed, gocron.WithClock(s.clock), gocron.WithLocation(time.UTC))
	if err != nil {
		return err
	}
	_, err = cron.NewJob(gocron.CronJob("* * * * *", false), task, gocron.WithName("report"), gocron.WithEventListeners(
		gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { s.say("skipped", 0, err) })))
	if err != nil {
		return err
	}
	cron.Start()
	s.say("ready", 0, nil)
	for {
		order, err := parent.Hear(ctx)
		if err != nil {
			return err
		}
		switch order {
		case awaitLead:
			for leader.Elector.IsLeader(ctx) != nil {
				time.Sleep(10 * time.Millisecond) // in the child there is no other condition to wait for
			}
			s.say("leads", 0, nil)
		default:
			s.long.Store(order == tickLong)
			if err := s.clock.BlockUntilContext(ctx, 1); err != nil {
				return err
			}
			s.clock.Advance(time.Minute)
		}
	}
}

// awaitEntry waits until the session campaigns in the election.
func awaitEntry(ctx context.Context, sess *session.Session) error {
	const entries = "holdfast/election/cron/@/"
	for {
		resp, err := sess.Client().Get(ctx, entries, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range resp.Kvs {
			if kv.Lease == int64(sess.Lease()) {
				return nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// run is one run of the job.
func (s *scheduler) run(ctx context.Context, h fencing.Holder) error {
	s.say("ran", h.Token(), nil)
	if s.long.Load() {
		<-ctx.Done()
		s.say("ended", h.Token(), context.Cause(ctx))
	}
	return nil
}

func (s *scheduler) say(what string, token holdfast.Token, err error) {
	ev := event{Token: int64(token), Held: errors.Is(err, locker.ErrLocked), Lost: errors.Is(err, holdfast.ErrLost)}
	if err != nil {
		ev.Err = err.Error()
	}
	s.parent.Say(what, ev)
}

// elector reports the runs that are skipped: gocron does not.
type elector struct {
	*gocronlock.Elector
	say func(what string, token holdfast.Token, err error)
}

func (e elector) IsLeader(ctx context.Context) error {
	err := e.Elector.IsLeader(ctx)
	if err != nil {
		e.say("skipped", 0, err)
	}
	return err
}
