package robustness

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// taking is how a session takes a name; what it returns checks that, and gives it back.
type taking func(ctx context.Context, sess *session.Session, name string) (checks, releases, error)

type (
	checks   interface{ Check() error }
	releases func(context.Context) error
)

// newcomers are the ways of a holder and of one that comes when the holder's lease has gone.
var newcomers = map[string]struct{ holder, newcomer taking }{
	"lock, then lock":         {takesLock, takesLock},
	"lock, then TryLock":      {takesLock, triesLock},
	"writer, then reader":     {takesToWrite, takesToRead},
	"reader, then writer":     {takesToRead, takesToWrite},
	"permit, then permit":     {takesPermit, takesPermit},
	"downgradable, then lock": {takesDowngradable, takesLock},
	"lock, then downgradable": {takesLock, takesDowngradable},
	"permit, then TryAcquire": {takesPermit, triesPermit},
	"set, then set":           {takesSet, takesSet},
	"tree, then below":        {takesTree(""), takesTree("/below")},
	"below, then tree":        {takesTree("/below"), takesTree("")},
	"leader, then leader":     {leads, leads},
}

func takesLock(ctx context.Context, sess *session.Session, name string) (checks, releases, error) {
	lk, err := locker.NewMutex(sess, name).Lock(ctx)
	return lk, lk.Unlock, err
}

func triesLock(ctx context.Context, sess *session.Session, name string) (checks, releases, error) {
	lk, err := locker.NewMutex(sess, name).TryLock(ctx)
	return lk, lk.Unlock, err
}

func takesToWrite(ctx context.Context, sess *session.Session, name string) (checks, releases, error) {
	lk, err := locker.NewRWMutex(sess, name).Lock(ctx)
	return lk, lk.Unlock, err
}

func takesToRead(ctx context.Context, sess *session.Session, name string) (checks, releases, error) {
	lk, err := locker.NewRWMutex(sess, name).RLock(ctx)
	return lk, lk.Unlock, err
}

func takesPermit(ctx context.Context, sess *session.Session, name string) (checks, releases, error) {
	p, err := locker.NewSemaphore(sess, name, 1).Acquire(ctx, 1)
	return p, p.Release, err
}

func triesPermit(ctx context.Context, sess *session.Session, name string) (checks, releases, error) {
	p, err := locker.NewSemaphore(sess, name, 1).TryAcquire(ctx, 1)
	return p, p.Release, err
}

func takesDowngradable(ctx context.Context, sess *session.Session, name string) (checks, releases, error) {
	lk, err := locker.NewRWMutex(sess, name).LockDowngradable(ctx)
	return lk, lk.Unlock, err
}

func takesSet(ctx context.Context, sess *session.Session, name string) (checks, releases, error) {
	lk, err := locker.NewSet(sess, locker.Write(name), locker.Write(name+"-too")).Lock(ctx)
	return lk, lk.Unlock, err
}

func takesTree(below string) taking {
	return func(ctx context.Context, sess *session.Session, name string) (checks, releases, error) {
		lk, err := locker.NewTreeMutex(sess, name+below).Lock(ctx)
		return lk, lk.Unlock, err
	}
}

func leads(ctx context.Context, sess *session.Session, name string) (checks, releases, error) {
	term, err := election.New(sess, name).With(election.Options{Value: ""}).Campaign(ctx)
	return term, term.Resign, err
}

// The lease of a holder that is busy is revoked, or its entry deleted, and another session wants the name as soon as
// etcd has answered that. It must not hold before the holder's Check has told the loss.
func TestNewcomerHoldsOnlyWhenTheHolderHasBeenTold(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	for _, deleted := range []bool{false, true} {
		for name, kind := range newcomers {
			how := fmt.Sprintf("%s, deleted %t", name, deleted)
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				var overlaps, newcomers atomic.Int64
				var lanes sync.WaitGroup
				for lane := range rounds.Of(20, 1) {
					lanes.Go(func() {
						for i := range rounds.Of(10, 1) {
							n := &newcomer{of: kind.holder, by: kind.newcomer, name: fmt.Sprintf("%s %d %d", how, lane, i)}
							n.run(t, srv, deleted)
							newcomers.Add(1)
							if n.overlap > 0 {
								overlaps.Add(1)
								t.Errorf("%s: both held, for %v", n.name, n.overlap)
							}
						}
					})
				}
				lanes.Wait()
				t.Logf("both held in %d of %d", overlaps.Load(), newcomers.Load())
			})
		}
	}
}

// newcomer is a round.
type newcomer struct {
	of, by  taking
	name    string
	overlap time.Duration // how long both held
}

func (n *newcomer) run(t *testing.T, srv *etcdtest.Server, deleted bool) {
	cli := srv.Client(t)
	old, next := open(t, cli, session.Options{}), open(t, cli, session.Options{})
	held, _, err := n.of(deadline(t), old, n.name)
	if err != nil {
		t.Error(err)
		return
	}
	var believed atomic.Int64 // when the holder last began a Check that said it holds
	began, told := time.Now(), make(chan struct{})
	go func() { // ends by the loss
		defer close(told)
		for {
			at := time.Since(began)
			if held.Check() != nil {
				return
			}
			believed.Store(int64(at))
			<-time.After(100 * time.Microsecond)
		}
	}()
	if deleted {
		err = deleteEntries(deadline(t), cli, old.Lease())
	} else {
		_, err = cli.Revoke(deadline(t), old.Lease())
	}
	if err != nil {
		t.Error(err)
		return
	}
	_, release, err := n.by(deadline(t), next, n.name)
	holds := time.Since(began)
	if err != nil {
		t.Errorf("%s: the newcomer: %v", n.name, err)
		return
	}
	<-told
	n.overlap = time.Duration(believed.Load()) - holds
	mustSucceed(t, release(deadline(t)))
	mustSucceed(t, next.Close(deadline(t)))
	mustSucceed(t, old.Close(deadline(t)))
}

// deleteEntries deletes what a session has put for what it holds: the keys of the lease but its session key. The claims
// stand: they are not of this lease.
func deleteEntries(ctx context.Context, cli *clientv3.Client, lease clientv3.LeaseID) error {
	resp, err := cli.TimeToLive(ctx, lease, clientv3.WithAttachedKeys())
	if err != nil {
		return err
	}
	for _, key := range resp.Keys {
		if strings.HasPrefix(string(key), "holdfast/session/") {
			continue
		}
		if _, err := cli.Delete(ctx, string(key)); err != nil {
			return err
		}
	}
	return nil
}
