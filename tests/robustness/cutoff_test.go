package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// Scenarios 19 and 20: a holder is cut off in one of several ways at a random
// moment between renewals. Its context ends before another client acquires.
func TestHolderIsToldBeforeAnotherAcquiresInEveryOutage(t *testing.T) {
	t.Parallel()
	const parallel = 16 // more would themselves keep a slow machine from renewing in time
	total := rounds.Of(100, 16)
	cuts := map[string]func(*etcdtest.Link){
		"cut":                    (*etcdtest.Link).Cut,
		"black-holed":            (*etcdtest.Link).BlackHole,
		"half-open":              (*etcdtest.Link).BlackHoleReplies,
		"renewals hang":          func(l *etcdtest.Link) { l.Stall("LeaseKeepAlive") },
		"all but renewals":       func(l *etcdtest.Link) { l.Stall("Range", "Txn", "LeaseGrant", "Watch") },
		"slow, then cut":         func(l *etcdtest.Link) { l.Cut() },
		"slow, then black-holed": (*etcdtest.Link).BlackHole,
		"slow, then half-open":   (*etcdtest.Link).BlackHoleReplies,
	}
	slow := func(kind string) bool { return len(kind) > 4 && kind[:4] == "slow" }
	kinds := make([]string, 0, len(cuts))
	for kind := range cuts {
		kinds = append(kinds, kind)
	}

	srv := etcdtest.Start(t)
	var mu sync.Mutex // protects smallest
	smallest := make(map[string]time.Duration)
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for round := range total {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			kind := kinds[round%len(kinds)]
			margin := cutOffOnce(t, srv, fmt.Sprintf("round-%d", round), slow(kind), cuts[kind])
			mu.Lock()
			defer mu.Unlock()
			if least, ok := smallest[kind]; !ok || margin < least {
				smallest[kind] = margin
			}
		})
	}
	wg.Wait()
	for kind, margin := range smallest {
		t.Logf("%-20s smallest margin %v", kind, margin)
		if margin <= 0 {
			t.Errorf("%s: a holder was told %v after another client acquired", kind, -margin)
		}
	}
}

// cutOffOnce cuts a holder off and returns how long its context ended before the
// other client acquired.
func cutOffOnce(t *testing.T, srv *etcdtest.Server, name string, slow bool, cut func(*etcdtest.Link)) time.Duration {
	opts := session.Options{TTL: 2 * time.Second}
	link := srv.Link(t)
	if slow {
		link.Delay(100 * time.Millisecond)
	}
	sess, other := open(t, link.Client(), opts), open(t, srv.Client(t), session.Options{})
	lk, err := locker.NewMutex(sess, name).Lock(deadline(t))
	if err != nil {
		t.Error(err)
		return 0
	}
	hctx, cancel := lk.WithContext(context.Background())
	defer cancel()
	told := make(chan time.Time, 1)
	context.AfterFunc(hctx, func() { told <- time.Now() })

	phase := time.NewTimer(time.Duration(rand.Int64N(int64(2 * time.Second))))
	select {
	case <-phase.C:
	case at := <-told:
		told <- at // the delay alone has cost the lease
	}
	cut(link)
	next, err := locker.NewMutex(other, name).Lock(deadline(t))
	acquired := time.Now()
	if err != nil {
		t.Error(err)
		return 0
	}
	margin := acquired.Sub(<-told)
	var lost *holdfast.LostError
	if err := lk.Check(); !errors.As(err, &lost) {
		t.Errorf("%s: Check: %v", name, err)
	}
	if _, err := etcdfence.NewWriter(lk).Put(deadline(t), name, "stale"); err == nil {
		t.Errorf("%s: the stale holder wrote", name)
	}
	if next.Token() <= lk.Token() {
		t.Errorf("%s: token %v after %v", name, next.Token(), lk.Token())
	}
	link.Heal()
	if err := next.Unlock(deadline(t)); err != nil {
		t.Error(err)
	}
	return margin
}
