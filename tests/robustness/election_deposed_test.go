package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// inParallel runs all rounds, at most limit at a time.
func inParallel(total, limit int, round func(i int)) {
	slots := make(chan struct{}, limit)
	var all sync.WaitGroup
	for i := range total {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			round(i)
		})
	}
	all.Wait()
}

// durations collects measurements from concurrent rounds.
type durations struct {
	mu  sync.Mutex
	all []time.Duration
}

func (d *durations) add(v time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, v)
}

// sorted must not be called before all rounds have ended.
func (d *durations) sorted() []time.Duration {
	slices.Sort(d.all)
	return d.all
}

// A leader is cut off from etcd at a random moment between renewals. The context
// of its function must end before the function of the next leader begins.
func TestBlackHoledLeaderIsToldBeforeTheNextTermBegins(t *testing.T) {
	const parallel = 8 // more would themselves keep a slow machine from renewing in time
	total := rounds.Of(60, parallel/2)
	cluster := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true})
	next := open(t, cluster.Client(t), session.Options{TTL: 30 * time.Second})
	var margins, failovers durations
	inParallel(total, parallel, func(i int) {
		margin, failover := deposeOnce(t, cluster, next, fmt.Sprintf("round-%d", i))
		margins.add(margin)
		failovers.add(failover)
	})
	m, f := margins.sorted(), failovers.sorted()
	t.Logf("%d rounds: the context ended %v to %v before the next term began", total, m[0], m[total-1])
	t.Logf("failover with a TTL of %v: %v to %v, median %v", childTTL, f[0], f[total-1], f[total/2])
	if m[0] <= 0 {
		t.Errorf("the context of a leader ended %v after the next term began", -m[0])
	}
}

// deposeOnce cuts a leader off. margin is the time from the end of its function's
// context to the start of the next leader's function, failover from the outage to
// that start.
func deposeOnce(
	t *testing.T, cluster *etcdtest.Cluster, next *session.Session, name string,
) (margin, failover time.Duration) {
	link, err := cluster.NewLink()
	if err != nil {
		t.Error(err)
		return 0, 0
	}
	defer link.Close()
	sess, err := session.New(deadline(t), link.Client(), session.Options{TTL: childTTL, Logger: next.Logger()})
	if err != nil {
		t.Error(err)
		return 0, 0
	}
	defer func() {
		link.Heal()
		_ = sess.Close(deadline(t))
	}()

	var old *election.Term
	leads, told := make(chan struct{}), make(chan time.Time, 1)
	returned := make(chan error, 1)
	go func() { // joined below
		returned <- election.New(sess, name).With(election.Options{Value: "old"}).RunWhileLeader(deadline(t),
			func(ctx context.Context, term *election.Term) error {
				old = term
				close(leads)
				<-ctx.Done()
				told <- time.Now()
				return context.Cause(ctx)
			})
	}()
	select {
	case <-leads:
	case err := <-returned:
		t.Errorf("%s: the first RunWhileLeader returned %v", name, err)
		return 0, 0
	}
	phase := time.NewTimer(time.Duration(rand.Int64N(int64(childTTL / 2))))
	queued := make(chan error, 1)
	var began, cutOff time.Time
	go func() { // joined below
		queued <- election.New(next, name).With(election.Options{Value: "new"}).RunWhileLeader(deadline(t),
			func(_ context.Context, term *election.Term) error {
				began = time.Now()
				if term.Token() <= old.Token() {
					t.Errorf("%s: token %v after %v", name, term.Token(), old.Token())
				}
				if err := old.Check(); !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("%s: Check of the old term during the new one: %v", name, err)
				}
				link.Heal() // the guarded write of the old term can reach etcd
				_, err := etcdfence.NewWriter(pausedAfterCheck{old}).Put(deadline(t), name, "stale")
				if !errors.Is(err, fencing.ErrStale) {
					t.Errorf("%s: guarded write of the old term: %v", name, err)
				}
				return nil
			})
	}()
	<-phase.C
	cutOff = time.Now()
	link.BlackHole()
	if err := <-queued; err != nil {
		t.Error(err)
	}
	if err := <-returned; !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("%s: the old RunWhileLeader returned %v", name, err)
	}
	return began.Sub(<-told), began.Sub(cutOff)
}
