package session_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// onMembers runs a test in virtual time with a session on a cluster of so many members.
func onMembers(t *testing.T, members int, f func(t *testing.T, srv *etcdfake.Server, p *kit.Process)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(etcdfake.Options{Members: members})
		t.Cleanup(srv.Close)
		p := kit.StartQuiet(t, srv)
		time.Sleep(3 * time.Second)
		f(t, srv, p)
	})
}

// watches returns how many watches there are, and the largest number on one member.
func watches(srv *etcdfake.Server) (all, most int) {
	for _, m := range srv.Members() {
		all, most = all+m.Watches(), max(most, m.Watches())
	}
	return all, most
}

func TestSessionKeyIsWatchedOnAMajorityOfTheMembers(t *testing.T) {
	for members, want := range map[int]int{1: 1, 3: 3, 4: 3, 5: 3} {
		onMembers(t, members, func(t *testing.T, srv *etcdfake.Server, p *kit.Process) {
			check := func(when string) {
				t.Helper()
				if all, most := watches(srv); all != want || most != 1 || !p.Host.Lease().Watched() {
					t.Errorf("%d members, %s: %d watches, %d on one member, watched %v", members, when, all, most,
						p.Host.Lease().Watched())
				}
			}
			check("at first")
			for range 4 {
				for _, m := range srv.Members() {
					m.Reset()
					time.Sleep(time.Second)
				}
			}
			time.Sleep(40 * time.Second)
			check("after four restarts of each")
			for range 4 {
				srv.CancelWatches(rpctypes.ErrNoLeader)
				time.Sleep(3 * time.Second)
			}
			time.Sleep(40 * time.Second)
			check("after watches were canceled four times")
			srv.Revoke(p.Sess.Lease())
			time.Sleep(3 * time.Second)
			check("on the next lease")
		})
	}
}

// A watch counts when a read that was sent after its creation is answered, and no more as soon as it fails.
func TestWatchCountsOnlyWhileItStands(t *testing.T) {
	onMembers(t, 3, func(t *testing.T, srv *etcdfake.Server, p *kit.Process) {
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if kind == "session" && n > 1 { // the first slot's is answered
				f.Reply = time.Second
			}
			return f
		})
		p.Link.Reset()
		synctest.Wait()
		if p.Host.Lease().Watched() {
			t.Error("watched, and all streams have ended")
		}
		time.Sleep(500 * time.Millisecond)
		if all, _ := watches(srv); all < 2 || p.Host.Lease().Watched() {
			t.Errorf("%d watches are created, and one read after that is answered; watched %v", all, p.Host.Lease().Watched())
		}
		p.Plan(nil)
		time.Sleep(5 * time.Second)
		if !p.Host.Lease().Watched() {
			t.Error("not watched again")
		}
		srv.LoseLeader()
		if time.Sleep(4 * time.Second); p.Host.Lease().Watched() {
			t.Error("watched by members without a leader, which hear nothing")
		}
		srv.ChangeLeader(0)
		if time.Sleep(5 * time.Second); !p.Host.Lease().Watched() {
			t.Error("not watched with the next leader")
		}
	})
}

// When a leader is gone, all watches of all sessions begin anew at once. Each reads the key once: copies of those reads
// would load the members that are to elect another.
func TestWatchThatBeginsAnewReadsOnceWhileMembersAreSlow(t *testing.T) {
	onMembers(t, 5, func(t *testing.T, srv *etcdfake.Server, p *kit.Process) {
		p.PlanAll("session", etcdfake.Fate{Reply: 4 * time.Second})
		p.Link.Reset()
		time.Sleep(1500 * time.Millisecond)
		if all, _ := watches(srv); all != 3 || p.Counts()["session"] != all {
			t.Errorf("%d watches, %d reads of the session key", all, p.Counts()["session"])
		}
		time.Sleep(3 * time.Second)
		if !p.Host.Lease().Watched() {
			t.Error("the reads have been answered, and the lease is not watched")
		}
	})
}

// All three watches tell of the deletion; the key is put again once.
func TestSessionKeyThatSeveralWatchesSeeDeletedIsPutAgainOnce(t *testing.T) {
	onMembers(t, 3, func(t *testing.T, srv *etcdfake.Server, p *kit.Process) {
		for range 5 {
			p.Plan(nil)
			srv.Delete(p.SessionKey())
			time.Sleep(5 * time.Second)
			if n := p.Counts()["gate"]; n != 1 || len(srv.Keys(p.SessionKey())) != 1 || !p.Host.Lease().Watched() {
				t.Errorf("%d puts; keys %v; watched %v", n, srv.Keys(p.SessionKey()), p.Host.Lease().Watched())
			}
		}
	})
}

// A member that was replaced by a learner, or left, does not count: the members are listed again and again.
func TestWatchOnAMemberThatVotesNoMoreDoesNotCount(t *testing.T) {
	onMembers(t, 3, func(t *testing.T, srv *etcdfake.Server, p *kit.Process) {
		first := srv.Members()[0]
		first.SetLearner(true)
		time.Sleep(31 * time.Second)
		if !p.Host.Lease().Watched() { // on both voters that are left
			t.Error("not watched")
		}
		srv.Members()[1].Reset()
		p.Link.BlackHoleMember(srv.Members()[1])
		time.Sleep(35 * time.Second)
		if p.Host.Lease().Watched() {
			t.Error("watched on one of two voters")
		}
	})
}

// A client with a password logs in for each stream, so it has no third one. Two are a majority.
func TestClientWithAPasswordHasNoThirdWatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := etcdfake.New(etcdfake.Options{Members: 3})
		t.Cleanup(srv.Close)
		link := srv.Link()
		cli := kit.Dial(t, link, srv.Members())
		cli.Username = "app"
		p := kit.StartOn(t, link, cli)
		time.Sleep(40 * time.Second)
		if all, most := watches(srv); all != 2 || most != 1 || !p.Host.Lease().Watched() {
			t.Errorf("%d watches, %d on one member, watched %v", all, most, p.Host.Lease().Watched())
		}
	})
}

// Nothing waits for the list of the members, so it is not sent beside itself. Those that are known go on counting.
func TestListOfMembersThatIsNotAnsweredIsSentAgainLater(t *testing.T) {
	onMembers(t, 3, func(t *testing.T, _ *etcdfake.Server, p *kit.Process) {
		var listed []time.Duration
		began := time.Now()
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if c.Method != "MemberList" {
				return etcdfake.Fate{}
			}
			listed = append(listed, time.Since(began))
			return etcdfake.Fate{LoseRequest: true, Silent: true}
		})
		time.Sleep(time.Minute)
		p.Link.Heal()
		synctest.Wait()
		for i, at := range listed {
			if i > 0 && at-listed[i-1] < 5*time.Second {
				t.Errorf("listed at %v", listed)
			}
		}
		if n := len(listed); n < 3 || n > 6 || !p.Host.Lease().Watched() {
			t.Errorf("listed %d times in a minute; the lease is watched: %v", n, p.Host.Lease().Watched())
		}
	})
}

// While members are silent, the session does not look for others all the time. One of them does not suspend it. Two
// may: that they are silent the client's keepalive finds out, which this link does not have, and until then two of
// three requests go to them.
func TestSessionLooksForMembersWithPauses(t *testing.T) {
	onMembers(t, 3, func(t *testing.T, srv *etcdfake.Server, p *kit.Process) {
		for i, most := range []int{0, 30, 180} { // messages about watches in three minutes
			if i > 0 {
				m := srv.Members()[i]
				p.Link.BlackHoleMember(m)
				m.Reset()
			}
			time.Sleep(time.Minute)
			before := p.Link.Count()["Watch"]
			time.Sleep(3 * time.Minute)
			if n := p.Link.Count()["Watch"] - before; n > most {
				t.Errorf("%d members are cut off: %d watches in three minutes", i, n)
			} else {
				t.Logf("%d members are cut off: %d watches in three minutes", i, n)
			}
			if state := p.Sess.State(); i < 2 && state != holdfast.Connected {
				t.Errorf("%d members are cut off: the session is %v", i, state)
			}
		}
	})
}
