package kubelock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/contrib/kubelock"
	"github.com/holdfast-go/holdfast/etcdfake"
)

// replica is a candidate with client-go's elector, and what became of it.
type replica struct {
	lock     *kubelock.Lock
	link     *etcdfake.Link
	cancel   context.CancelFunc
	ended    chan struct{}
	started  time.Time
	canceled time.Time // the context of OnStartedLeading
	token    holdfast.Token
}

func startReplica(t *testing.T, srv *etcdfake.Server, identity string, release bool) *replica {
	t.Helper()
	r := &replica{link: srv.Link(), ended: make(chan struct{})}
	r.lock = candidate(t, r.link, identity)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { // joined by stop
		defer close(r.ended)
		elect(ctx, t, r.lock, release, func(ctx context.Context) {
			r.started, r.token = time.Now(), r.lock.Term().Token()
			<-ctx.Done()
			r.canceled = time.Now()
		}, func() {})
	}()
	t.Cleanup(r.stop)
	synctest.Wait()
	return r
}

func (r *replica) stop() {
	r.cancel()
	<-r.ended
}

// Of three replicas the first leads. Released, the next one follows within 2.2 times RetryPeriod; cut off, it stops
// before the next one starts. Each has a larger token.
func TestClientGoElectsOneAfterTheOther(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a := startReplica(t, srv, "a", true)
		time.Sleep(time.Second)
		b := startReplica(t, srv, "b", true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if a.started.IsZero() || !a.canceled.IsZero() || !b.started.IsZero() {
			t.Fatalf("a leads from %v to %v, b from %v", a.started, a.canceled, b.started)
		}

		released := time.Now()
		a.stop()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if b.started.IsZero() || b.started.Sub(released) > 4500*time.Millisecond || b.token <= a.token {
			t.Fatalf("b leads %v after the release, with token %v after %v", b.started.Sub(released), b.token, a.token)
		}

		c := startReplica(t, srv, "c", true)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.link.BlackHole()
		time.Sleep(time.Minute)
		synctest.Wait()
		if c.started.IsZero() || !b.canceled.Before(c.started) || c.token <= b.token {
			t.Errorf("b leads until %v with token %v, c from %v with %v", b.canceled, b.token, c.started, c.token)
		}
		if term := b.lock.Term(); term == nil || term.Check() == nil {
			t.Errorf("b, cut off, still has its term: %v", term)
		}
	})
}

// A leader sends one Txn each RetryPeriod, and a follower one read.
func TestElectorSendsOneRequestEachPeriod(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a := startReplica(t, srv, "a", true)
		b := startReplica(t, srv, "b", true)
		time.Sleep(time.Second)
		leader, follower := requests(a.link), requests(b.link)
		time.Sleep(20 * time.Second)
		if n := requests(a.link) - leader; n != 10 {
			t.Errorf("the leader has sent %d requests in 20 s, want 10", n)
		}
		if n := requests(b.link) - follower; n < 4 || n > 10 { // its period is 2 to 4.4 s
			t.Errorf("the follower has sent %d requests in 20 s, want 4 to 10", n)
		}
	})
}
