package leasemodel

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/tests/models/modelsearch"
)

func TestMain(m *testing.M) { leak.Main(m) }

// underRace returns fewer of the searches, if the race detector is built in. It makes a search ten times slower and has
// nothing to find, because one goroutine searches. "go test ./..." makes them all.
func underRace[T any](all []T, every int) (some []T) {
	for i, x := range all {
		if i%every == 0 || !modelsearch.Race {
			some = append(some, x)
		}
	}
	return some
}

var (
	// The lease can be renewed twice and more, by leaders of three terms.
	long = scenario{horizon: 7, terms: 3, copies: 1, ttl: 3, trust: 3}
	// Requests are sent again while the first copy is under way.
	wide = scenario{horizon: 4, terms: 2, copies: 2, ttl: 3, trust: 3}
	// Enough to notice what has to be noticed.
	short = scenario{horizon: 6, terms: 3, copies: 1, ttl: 3, trust: 3}
	// A session begins. No renewal counts after the one that its put has proved.
	beginning = scenario{horizon: 7, terms: 3, copies: 1, ttl: 3, trust: 3, put: true}
)

func TestLeaseExistsWhileItIsTrusted(t *testing.T) {
	for _, s := range underRace([]scenario{beginning, wide, long}, 3) {
		m := model{scenario: s}
		states, latest, wrong := m.search()
		t.Logf("%+v: %d states", s, states)
		if wrong != "" {
			t.Errorf("trusted, and revoked:\n\t%s", wrong)
		}
		want := s.horizon + s.trust
		if s.put {
			want = 2*s.trust - 1 // the put must be sent while the Grant is trusted
		}
		if latest != want {
			t.Errorf("trusted until %d at most, want %d: renewals do not count", latest, want)
		}
	}
}

func TestEachBrokenRuleIsNoticed(t *testing.T) {
	for _, r := range underRace([]rule{
		termsAreNotCompared, olderAckCounts, countsFromLaterSend, countsFromAck, countsFromProof, countsFromOldProof,
		countsFromLatestCopy, lossIsNotFinal, ackIsEnough, ackCountsFromItsReply,
		serializableRead, readWithoutQuorum, shortPromotion, noPromotion, ackHeaderIsLater, proofHeaderIsOlder,
		putHeaderIsOlder,
	}, 4) {
		t.Run(string(r), func(t *testing.T) {
			m := model{scenario: short, broken: r}
			switch r {
			case countsFromLatestCopy:
				m.scenario = wide
			case putHeaderIsOlder:
				m.scenario = beginning
			}
			states, _, wrong := m.search()
			if wrong == "" {
				t.Fatalf("not noticed in %d states", states)
			}
			t.Logf("%d states:\n\t%s", states, wrong)
		})
	}
}

// These follow from the other rules. A leader that was elected after the read, and acknowledges, has given the lease
// its full TTL since. A session has lost its lease before that expires by the clock of the leader that leads. And at
// the beginning no leader can have revoked the lease that the Grant is still trusted for.
func TestRulesThatAreNotNeeded(t *testing.T) {
	for _, r := range underRace([]rule{putNeedsNoLease, olderProofCounts, expiredIsRenewed}, 3) {
		t.Run(string(r), func(t *testing.T) {
			m := model{scenario: short, broken: r}
			if r == putNeedsNoLease {
				m.scenario = beginning
			}
			if _, _, wrong := m.search(); wrong != "" {
				t.Errorf("trusted, and revoked:\n\t%s", wrong)
			}
		})
	}
}
