package hold_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// three runs a test in virtual time with a cluster of three members.
func three(t *testing.T, f func(t *testing.T, srv *etcdfake.Server)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(etcdfake.Options{Members: 3})
		t.Cleanup(srv.Close)
		f(t, srv)
	})
}

func startQuiet(t *testing.T, srv *etcdfake.Server, change ...func(*session.Options)) *holdtest.Process {
	t.Helper()
	return &holdtest.Process{Process: kit.StartQuiet(t, srv, change...)}
}

// rests waits until a session is at rest: its lease is watched, and what is held has been polled.
func rests(t *testing.T, p *holdtest.Process) {
	t.Helper()
	time.Sleep(3 * time.Second)
	if !p.Host.Lease().Watched() {
		t.Fatal("the lease is not watched")
	}
}

// requestsIn counts what a session sends in a time, by kind, without what it sends twice a minute: then the third
// watch, which is not needed, looks for a member that has none.
func requestsIn(p *holdtest.Process, d time.Duration) (all int, kinds map[string]int) {
	p.Plan(nil)
	time.Sleep(d)
	kinds = p.Counts()
	for kind, n := range kinds {
		if kind != "event" && kind != "MemberList" && kind != "LeaseTimeToLive" && kind != "read" &&
			kind != "session watch" {
			all += n
		}
	}
	return all, kinds
}

// claimsRenewals is how often the lease of the claims is renewed in two minutes at most: each 100 s.
const claimsRenewals = 2

func TestSessionAtRestSendsLittle(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server) {
		p := startQuiet(t, srv)
		const minutes = 2
		for name, c := range map[string]struct {
			holds int
			most  int // requests in ten seconds
		}{"it only exists": {0, 4}, "it holds one": {1, 4}, "it holds many": {100, 4}, "it holds too many": {101, 8}} {
			var locks []*hold.Hold
			for i := range c.holds {
				locks = append(locks, holdtest.MustAcquire(t, p.Queue(fmt.Sprint("lock", i))))
				time.Sleep(37 * time.Millisecond)
			}
			rests(t, p)
			time.Sleep(12 * time.Second) // what was acquired one after the other is asked about together
			all, kinds := requestsIn(p, minutes*time.Minute)
			if most := c.most*6*minutes + claimsRenewals; all > most {
				t.Errorf("%s: %d requests in %d minutes, at most %d: %v", name, all, minutes, most, kinds)
			}
			if kinds["MemberList"] > 2*minutes || kinds["read"] > 2*minutes {
				t.Errorf("%s: sent more than twice a minute: %v", name, kinds)
			}
			t.Logf("%s: %.2f requests a second: %v", name, float64(all)/minutes/60, kinds)
			for _, h := range locks {
				holdtest.MustRelease(t, h)
			}
		}
	})
}

func TestSessionThatWaitsSendsLittle(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server) {
		a, b := startQuiet(t, srv), startQuiet(t, srv)
		h := holdtest.MustAcquire(t, a.Queue("x"))
		waiter := holdtest.AcquireLater(kit.Within(t, 10*time.Minute), b.Queue("x"))
		rests(t, b)
		const minutes = 2
		all, kinds := requestsIn(b, minutes*time.Minute)
		if all > 4*6*minutes+claimsRenewals || kinds["read"]+kinds["MemberList"] > 3*2*minutes {
			t.Errorf("%d requests in %d minutes: %v", all, minutes, kinds)
		}
		holdtest.MustRelease(t, h)
		holdtest.MustRelease(t, holdtest.Granted(t, srv, waiter).H)
	})
}

// Two of three members lag, or are cut off from the holder: the third watch tells.
func TestThirdWatchTellsIfTwoMembersAreSick(t *testing.T) {
	for _, name := range []string{"lagging", "cut off"} {
		for i := range 3 {
			three(t, func(t *testing.T, srv *etcdfake.Server) {
				p := startQuiet(t, srv)
				h := holdtest.MustAcquire(t, p.Queue("x"))
				rests(t, p)
				for k, m := range srv.Members() {
					if k != i {
						sickness[name](m, p)
					}
				}
				srv.Revoke(h.Lease())
				if lost, after := noticed(t, h); after > kit.LockDelay {
					t.Errorf("all but member %d are %s: told after %v: %v", i, name, after, lost)
				}
				for _, m := range srv.Members() {
					m.Lag(0)
				}
				p.Heal()
			})
		}
	}
}

func TestLockThatIsTakenAndReleasedCostsNoPoll(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server) {
		p := startQuiet(t, srv)
		rests(t, p)
		p.Plan(nil)
		for range 100 {
			h := holdtest.MustAcquire(t, p.Queue("x"))
			time.Sleep(20 * time.Millisecond)
			holdtest.MustRelease(t, h)
		}
		if n := p.Counts()["poll"]; n > 0 {
			t.Errorf("%d polls", n)
		}
	})
}

// sickness is what may happen to a minority of members.
var sickness = map[string]func(m *etcdfake.Member, holder *holdtest.Process){
	"well":         func(*etcdfake.Member, *holdtest.Process) {},
	"hung":         func(m *etcdfake.Member, _ *holdtest.Process) { m.Hang() },
	"lagging":      func(m *etcdfake.Member, _ *holdtest.Process) { m.Lag(time.Minute) },
	"cut off":      func(m *etcdfake.Member, p *holdtest.Process) { p.Link.BlackHoleMember(m) },
	"disconnected": func(m *etcdfake.Member, _ *holdtest.Process) { m.Reset() },
}

// Guarantee 16, with each member sick in each way, from long before the revocation to just before it.
func TestRevokedHolderWhoseLeaseIsWatchedIsToldBeforeAWaiterHolds(t *testing.T) {
	for name, makeSick := range sickness {
		for i := range 3 {
			for _, before := range []time.Duration{kit.OneWay, 3 * time.Second} {
				three(t, func(t *testing.T, srv *etcdfake.Server) {
					a, b := startQuiet(t, srv), holdtest.Start(t, srv)
					h := holdtest.MustAcquire(t, a.Queue("x"))
					rests(t, a)
					waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), b.Queue("x"))
					kit.Queued(t, srv, holdtest.EntriesX, 2)
					member := srv.Members()[i]
					makeSick(member, a)
					time.Sleep(before)
					srv.Revoke(h.Lease())
					revoked := time.Now()
					select {
					case <-h.Done():
					case r := <-waiter:
						t.Errorf("member %d is %s for %v: the waiter holds %v after the revocation, and the holder is not told; %v",
							i, name, before, r.At.Sub(revoked), r.Err)
					}
					if took := time.Since(revoked); took > kit.LockDelay {
						t.Errorf("member %d is %s for %v: told after %v", i, name, before, took)
					}
					member.Resume()
					member.Lag(0)
					a.Heal()
				})
			}
		}
	}
}

// While it is not watched on so many members as it must be, each look polls; and no more once it is watched again.
func TestHoldIsPolledWhileItsLeaseIsNotWatched(t *testing.T) {
	three(t, func(t *testing.T, srv *etcdfake.Server) {
		p := startQuiet(t, srv)
		holdtest.MustAcquire(t, p.Queue("x"))
		rests(t, p)
		if n := watchesOn(srv); n != [3]int{1, 1, 1} {
			t.Errorf("watches by member: %v", n)
		}
		p.PlanAll("session watch", etcdfake.Fate{LoseRequest: true})
		for i, want := range []bool{true, false, false} { // one after the other is restarted; no watch is created
			srv.Members()[i].Reset()
			synctest.Wait()
			if watched := p.Host.Lease().Watched(); watched != want {
				t.Fatalf("%d of three watches have failed: watched %v", i+1, watched)
			}
			polls := p.Counts()["poll"]
			time.Sleep(10 * kit.LockDelay)
			if n := p.Counts()["poll"] - polls; want && n > 3 || !want && n < 18 {
				t.Errorf("%d of three watches have failed: %d polls in ten lock delays", i+1, n)
			}
		}
		p.Plan(nil)
		time.Sleep(40 * time.Second)
		if n := watchesOn(srv); n != [3]int{1, 1, 1} || !p.Host.Lease().Watched() {
			t.Errorf("watches by member: %v; watched %v", n, p.Host.Lease().Watched())
		}
		if all, kinds := requestsIn(p, time.Minute); all > 37 {
			t.Errorf("%d requests a minute: %v", all, kinds)
		}
	})
}

func watchesOn(srv *etcdfake.Server) (n [3]int) {
	for i, m := range srv.Members() {
		n[i] = m.Watches()
	}
	return n
}

// The client knows one address of three members, or two; or the members are not known.
func TestHoldIsPolledEachTimeWhereNotEnoughMembersCanBeWatched(t *testing.T) {
	for name, c := range map[string]struct {
		endpoints int
		plan      func(p *kit.Process)
		quiet     bool
	}{
		"one endpoint":            {endpoints: 1},
		"two endpoints":           {endpoints: 2, quiet: true},
		"the members are unknown": {endpoints: 3, plan: func(p *kit.Process) { p.Link.LoseRequest("MemberList", 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			three(t, func(t *testing.T, srv *etcdfake.Server) {
				link := srv.Link()
				if c.plan != nil {
					c.plan(&kit.Process{Link: link})
				}
				p := kit.StartOn(t, link, kit.Dial(t, link, srv.Members()[:c.endpoints]))
				holdtest.MustAcquire(t, queue.New(p.Host, holdfast.KindLock, "x"))
				time.Sleep(3 * time.Second)
				if watched := p.Host.Lease().Watched(); watched != c.quiet {
					t.Errorf("watched: %v", watched)
				}
				polls, opened := p.Link.Count()["Txn"], p.Link.Count()["Watch"]
				time.Sleep(10 * kit.LockDelay)
				if n := p.Link.Count()["Watch"] - opened; n > 0 {
					t.Errorf("%d watches in ten lock delays", n)
				}
				if n := p.Link.Count()["Txn"] - polls; c.quiet && n > 3 || !c.quiet && n < 19 {
					t.Errorf("%d polls in ten lock delays", n)
				}
			})
		})
	}
}
