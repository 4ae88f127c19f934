package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// acquirer is holdtest.AcquireSet, or holdtest.TryAcquireSet.
type acquirer = func(ctx context.Context, s queue.Set, r hold.Request) ([]*hold.Hold, error)

// pairing is a former holder, and who comes after its end.
type pairing struct {
	holder, newcomer func(p *holdtest.Process) queue.Set
	acquire          acquirer
}

// pairings are those that exclude one another.
func pairings() map[string]pairing {
	writer := func(p *holdtest.Process) queue.Set { return p.Set("x") }
	reader := func(p *holdtest.Process) queue.Set { return p.Set("!x") }
	set := func(p *holdtest.Process) queue.Set { return p.Set("w", "x", "y") }
	foreign := func(p *holdtest.Process) queue.Set { return queue.Set{p.QueueAt("theirs/x")} }
	of := func(kind holdfast.Kind, name string) func(p *holdtest.Process) queue.Set {
		return func(p *holdtest.Process) queue.Set { return queue.Set{queue.New(p.Host, kind, name)} }
	}
	leader, shard := of(holdfast.KindElection, "x"), of(holdfast.KindShard, "x/0")
	permit := func(p *holdtest.Process) queue.Set { return queue.Set{p.Permits(2, 2)} }
	someOf := func(p *holdtest.Process) queue.Set { return queue.Set{p.Permits(2, 1)} }
	downgradable := func(p *holdtest.Process) queue.Set { return p.Queue("x").Downgradable() }
	tree := func(path string, above ...string) func(p *holdtest.Process) queue.Set {
		return func(p *holdtest.Process) (s queue.Set) {
			for _, name := range above {
				s = append(s, queue.New(p.Host, holdfast.KindTree, name).Above(path))
			}
			return append(s, queue.New(p.Host, holdfast.KindTree, path))
		}
	}
	return map[string]pairing{
		"lock":                   {writer, writer, holdtest.AcquireSet},
		"TryLock":                {writer, writer, holdtest.TryAcquireSet},
		"reader behind a writer": {writer, reader, holdtest.AcquireSet},
		"reader that tries":      {writer, reader, holdtest.TryAcquireSet},
		"writer behind a reader": {reader, writer, holdtest.AcquireSet},
		"set behind a lock":      {writer, set, holdtest.AcquireSet},
		"set that tries":         {writer, set, holdtest.TryAcquireSet},
		"lock behind a set":      {set, writer, holdtest.AcquireSet},
		"path below a tree lock": {tree("a"), tree("a/b", "a"), holdtest.AcquireSet},
		"path above a tree lock": {tree("a/b", "a"), tree("a"), holdtest.AcquireSet},
		"leader":                 {leader, leader, holdtest.AcquireSet},
		"shard":                  {shard, shard, holdtest.AcquireSet},
		"permit":                 {permit, someOf, holdtest.AcquireSet},
		"TryAcquire":             {permit, someOf, holdtest.TryAcquireSet},
		"downgradable lock":      {writer, downgradable, holdtest.AcquireSet},
		"behind a downgradable":  {downgradable, writer, holdtest.AcquireSet},
		"reader behind another":  {downgradable, reader, holdtest.AcquireSet},
		"foreign prefix":         {foreign, foreign, holdtest.AcquireSet},
		"foreign, one who tries": {foreign, foreign, holdtest.TryAcquireSet},
	}
}

// ends are how an entry goes without a release.
func ends() map[string]func(*kit.Peer) {
	return map[string]func(*kit.Peer){"revoked": (*kit.Peer).Revoke, "deleted by hand": (*kit.Peer).Vanish}
}

// deaf starts a process that hears of nothing by a watch: a poll tells it.
func deaf(t *testing.T, srv *etcdfake.Server) *holdtest.Process {
	t.Helper()
	p := holdtest.Start(t, srv)
	p.Plan(func(kind string, _ int) etcdfake.Fate {
		return etcdfake.Fate{LoseRequest: kind == "session watch", Silent: true, Reply: ifEvent(kind, time.Hour)}
	})
	return p
}

// A newcomer sees no entry, and the claim of the one that has gone without a release. It holds when the former holder
// has been told, and not before: that is watched, or polled.
func TestNewcomerDoesNotHoldBeforeTheFormerHolderIsTold(t *testing.T) {
	for name, c := range pairings() {
		for how, end := range map[string]func(srv *etcdfake.Server, h *hold.Hold){
			"revoked":         func(srv *etcdfake.Server, h *hold.Hold) { srv.Revoke(h.Lease()) },
			"deleted by hand": func(srv *etcdfake.Server, h *hold.Hold) { srv.Delete(h.Key()) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					a, b := deaf(t, srv), holdtest.Start(t, srv)
					former := holdtest.MustAcquireSet(t, c.holder(a), hold.Request{})
					time.Sleep(time.Second) // polled since, and not anew at once
					told := make(chan time.Time, 1)
					go func() { // the holder is told in any case
						<-former[0].Done()
						told <- time.Now()
					}()
					for _, h := range former {
						end(srv, h)
					}
					ended := time.Now()
					holds, err := c.acquire(kit.Within(t, time.Minute), c.newcomer(b), hold.Request{})
					if err != nil {
						t.Fatal(err)
					}
					select {
					case at := <-told:
						t.Logf("told after %v, the newcomer held after %v", at.Sub(ended), time.Since(ended))
					default:
						t.Errorf("both hold, %v after the end of the former one", time.Since(ended))
					}
					if took := time.Since(ended); took > kit.ToldWithin+kit.Prompt {
						t.Errorf("held after %v", took)
					}
					holdtest.MustRelease(t, holds[0])
					time.Sleep(time.Second)
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

// The holder stands still, so its session deletes no claim. If its session key has gone, it has been told after the
// lock delay, once it goes on; otherwise a poll tells it.
func TestNewcomerWaitsAsLongAsAHolderMayNotHaveBeenTold(t *testing.T) {
	for name, c := range pairings() {
		for how, d := range map[string]struct {
			end  func(srv *etcdfake.Server, h *hold.Hold)
			want time.Duration
		}{
			"revoked":         {func(srv *etcdfake.Server, h *hold.Hold) { srv.Revoke(h.Lease()) }, kit.LockDelay},
			"deleted by hand": {func(srv *etcdfake.Server, h *hold.Hold) { srv.Delete(h.Key()) }, kit.ToldWithin},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
					former := holdtest.MustAcquireSet(t, c.holder(a), hold.Request{})
					a.Stop()
					time.AfterFunc(kit.TTL-time.Second, a.Resume)
					for _, h := range former {
						d.end(srv, h)
					}
					ended := time.Now()
					holds, err := c.acquire(kit.Within(t, time.Minute), c.newcomer(b), hold.Request{})
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(ended); took < d.want || took > d.want+kit.Prompt {
						t.Errorf("held after %v, want %v", took, d.want)
					}
					holdtest.MustRelease(t, holds[0])
					time.Sleep(kit.TTL)
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

// Nothing excludes these two, so the claim of the first does not delay the second.
func TestReaderDoesNotWaitForAReaderThatIsGone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		gone, p := kit.JoinReader(t, srv, holdtest.EntriesX), holdtest.Start(t, srv)
		gone.Revoke()
		for _, acquire := range []acquirer{holdtest.AcquireSet, holdtest.TryAcquireSet} {
			began := time.Now()
			holds, err := acquire(kit.Within(t, time.Minute), p.Set("!x"), hold.Request{})
			if err != nil || time.Since(began) > kit.Prompt {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			holdtest.MustRelease(t, holds[0])
		}
	})
}

// A session remembers when it first saw a claim dead. So calls that are shorter than the delay get in at last.
func TestCallsBelowTheDelayGetInAtLast(t *testing.T) {
	const delay = 5 * time.Second / 2
	for name, acquire := range map[string]acquirer{"Lock": holdtest.AcquireSet, "TryLock": holdtest.TryAcquireSet} {
		for how, end := range ends() {
			t.Run(name+", "+how, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := holdtest.Start(t, srv, func(o *session.Options) { o.LockDelay = delay })
					gone := kit.Join(t, srv, holdtest.EntriesX)
					end(gone)
					want := 3
					if how == "deleted by hand" { // its session lives
						want = int((delay+6*time.Second)/time.Second) + 1
					}
					began, calls := time.Now(), 0
					for {
						calls++
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						holds, err := acquire(ctx, p.Set("x"), hold.Request{})
						cancel()
						if err == nil {
							holdtest.MustRelease(t, holds[0])
							break
						}
						if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, queue.ErrInDelay) != (name == "TryLock") {
							t.Fatal(err)
						}
						if calls == 20 {
							t.Fatalf("%d calls have failed", calls)
						}
					}
					if took := time.Since(began); calls != want || took < delay {
						t.Errorf("call %d got in after %v, want %d", calls, took, want)
					}
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}
