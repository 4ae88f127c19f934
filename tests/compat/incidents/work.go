package main

import (
	"context"
	"errors"
	"os/exec"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// A model of a command under a lock: when the lock is lost, it is released first, with a timeout of its own, and only
// then the command is ended. Its client is cut off.
func commandGoesOn(ctx context.Context, l *lab) (outcome, error) {
	first, second, err := l.upstreams(2, 60)
	if err != nil {
		return outcome{}, err
	}
	mutex := concurrency.NewMutex(first, "x")
	if err := mutex.Lock(ctx); err != nil {
		return outcome{}, err
	}
	command := exec.Command("sleep", "60")
	if err := command.Start(); err != nil {
		return outcome{}, err
	}
	ended := in(command.Wait)
	go func() { // ends within the timeout of the release
		<-first.Done()
		within, cancel := context.WithTimeout(ctx, releaseTimeout)
		defer cancel()
		_ = mutex.Unlock(within)
		_ = command.Process.Kill()
	}()
	l.link.BlackHole()
	if err := concurrency.NewMutex(second, "x").Lock(ctx); err != nil {
		return outcome{}, err
	}
	return commandEnded(time.Now(), <-ended)
}

// releaseTimeout was 90 s in the report.
const releaseTimeout = 3 * time.Second

func commandEnded(nextHeld time.Time, ended returned) (outcome, error) {
	if late := ended.at.Sub(nextHeld); late > 0 {
		return failedWith("the command ran for %v beside the next holder", ms(late))
	}
	return heldWith("the command had ended %v before the next one held", ms(nextHeld.Sub(ended.at)))
}

func commandGoesOnHere(ctx context.Context, l *lab) (outcome, error) {
	first, second, err := l.sessions(ctx, 2*time.Second, session.DefaultTTL)
	if err != nil {
		return outcome{}, err
	}
	started, ended := make(chan error, 1), make(chan returned, 1)
	do := in(func() error {
		return locker.NewMutex(first, "x").Do(ctx, func(ctx context.Context, _ *locker.Lock) error {
			command := exec.CommandContext(ctx, "sleep", "60")
			err := command.Start()
			started <- err
			if err == nil {
				err = command.Wait()
				ended <- returned{at: time.Now()}
			}
			return err
		})
	})
	if err := <-started; err != nil {
		return outcome{}, err
	}
	l.link.BlackHole()
	if _, err := locker.NewMutex(second, "x").Lock(ctx); err != nil {
		return outcome{}, err
	}
	nextHeld := time.Now()
	if err := (<-do).err; !errors.Is(err, holdfast.ErrLost) {
		return outcome{}, err
	}
	return commandEnded(nextHeld, <-ended)
}

// A model of a leader whose work does not look at its context. It is cut off for a while, and writes when the next one
// leads.
func ignoresItsContext(ctx context.Context, l *lab) (outcome, error) {
	first, second, err := l.upstreams(2, 60)
	if err != nil {
		return outcome{}, err
	}
	if err := concurrency.NewElection(first, "x").Campaign(ctx, "first"); err != nil {
		return outcome{}, err
	}
	l.link.BlackHole()
	if err := concurrency.NewElection(second, "x").Campaign(ctx, "second"); err != nil {
		return outcome{}, err
	}
	if _, err := l.cli.Put(ctx, "data", "of the second"); err != nil {
		return outcome{}, err
	}
	l.link.Heal()
	if _, err := l.cutOff.Put(ctx, "data", "of the first"); err != nil { // it has been told, and does not look
		return outcome{}, err
	}
	return whoseData(ctx, l.cli, "")
}

// whoseData says whether the write of the second leader stands.
func whoseData(ctx context.Context, cli *clientv3.Client, beside string) (outcome, error) {
	now, err := cli.Get(ctx, "data")
	if err != nil {
		return outcome{}, err
	}
	if string(now.Kvs[0].Value) == "of the second" {
		return heldWith("the write of the former leader was refused%s", beside)
	}
	return failedWith("the former leader went on, and overwrote what its successor had written")
}

func ignoresItsContextHere(ctx context.Context, l *lab) (outcome, error) {
	first, second, err := l.sessions(ctx, 2*time.Second, session.DefaultTTL)
	if err != nil {
		return outcome{}, err
	}
	overrun := make(chan time.Time, 1)
	mutex := locker.NewMutex(first, "x").With(locker.Options{OnOverrun: func(*holdfast.LostError, time.Time) {
		overrun <- time.Now() // a program ends itself here
	}})
	holds, goOn, wrote := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	do := in(func() error {
		return mutex.Do(ctx, func(_ context.Context, lk *locker.Lock) error {
			close(holds)
			<-goOn // and not its context
			_, err := etcdfence.NewWriter(lk).Put(context.WithoutCancel(ctx), "data", "of the first")
			wrote <- err
			return nil
		})
	})
	<-holds
	l.link.BlackHole()
	if _, err := locker.NewMutex(second, "x").Lock(ctx); err != nil {
		close(goOn)
		return outcome{}, err
	}
	nextHeld := time.Now()
	_, err = l.cli.Put(ctx, "data", "of the second")
	l.link.Heal()
	close(goOn)
	if err != nil {
		return outcome{}, err
	}
	<-do
	if err := <-wrote; err == nil {
		return whoseData(ctx, l.cli, "")
	}
	ended := "; OnOverrun was not called"
	select {
	case at := <-overrun:
		ended = "; OnOverrun, which ends a process, was called " + ms(nextHeld.Sub(at)).String() + " before the next one held"
	default:
	}
	return whoseData(ctx, l.cli, ended)
}
