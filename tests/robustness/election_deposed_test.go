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
	"github.com/holdfast-go/holdfast/session"
)

// inParallel runs rounds, some at once, and waits for all.
func inParallel(total, atOnce int, round func(i int)) {
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range total {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			round(i)
		})
	}
	all.Wait()
}

// durations collects what rounds have measured.
type durations struct {
	mu  sync.Mutex
	all []time.Duration
}

func (d *durations) add(v time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, v)
}

// sorted is called when all rounds have ended.
func (d *durations) sorted() []time.Duration {
	slices.Sort(d.all)
	return d.all
}

// "Deposed" means: told before another can lead. A leading process falls
// silent at any moment; its function's context must be done before the next
// function begins.
func TestBlackHoledLeaderIsToldBeforeTheNextTermBegins(t *testing.T) {
	const atOnce = 20
	total := rounds(60, 20)
	cluster := etcdtest.StartCluster(t, 3)
	next := open(t, cluster.Client(t), session.Options{TTL: 30 * time.Second})
	var margins, failovers durations
	inParallel(total, atOnce, func(i int) {
		margin, failover := deposeOnce(t, cluster, next, fmt.Sprintf("round-%d", i))
		margins.add(margin)
		failovers.add(failover)
	})
	m, f := margins.sorted(), failovers.sorted()
	t.Logf("%d rounds: told before the next term began by %v at least, %v at most", total, m[0], m[total-1])
	t.Logf("from silence to the next term with a TTL of %v: %v to %v, half of them within %v", childTTL, f[0], f[total-1], f[total/2])
	if m[0] <= 0 {
		t.Errorf("a leader was told %v after the next term had begun", -m[0])
	}
}

// deposeOnce returns by how much the old function's context was done before
// the new function began, and how long after the silence that was.
func deposeOnce(t *testing.T, cluster *etcdtest.Cluster, next *session.Session, name string) (margin, failover time.Duration) {
	link, err := cluster.NewLink()
	if err != nil {
		t.Error(err)
		return 0, 0
	}
	defer link.Close()
	sess, err := session.New(deadline(t), link.Client(), &session.Options{TTL: childTTL, Logger: next.Logger()})
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
		returned <- election.New(sess, name).RunWhileLeader(deadline(t), "old", func(ctx context.Context, term *election.Term) error {
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
		t.Errorf("%s: the old one does not lead: %v", name, err)
		return 0, 0
	}
	phase := time.NewTimer(time.Duration(rand.Int64N(int64(childTTL / 2))))
	queued := make(chan error, 1)
	var began time.Time
	var silent time.Time
	go func() { // joined below
		queued <- election.New(next, name).RunWhileLeader(deadline(t), "new", func(_ context.Context, term *election.Term) error {
			began = time.Now()
			if term.Token() <= old.Token() {
				t.Errorf("%s: token %v after %v", name, term.Token(), old.Token())
			}
			if err := old.Check(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("%s: the old term's Check while the new one lasts: %v", name, err)
			}
			link.Heal() // it is back, and still believes nothing
			if _, err := fencing.NewFencedWriter(pausedAfterCheck{old}).Put(deadline(t), name, "stale"); !errors.Is(err, fencing.ErrStale) {
				t.Errorf("%s: the old term's guarded write: %v", name, err)
			}
			return nil
		})
	}()
	<-phase.C
	silent = time.Now()
	link.BlackHole()
	if err := <-queued; err != nil {
		t.Error(err)
	}
	if err := <-returned; !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("%s: the old RunWhileLeader returned %v", name, err)
	}
	return began.Sub(<-told), began.Sub(silent)
}
