package leasemodel

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/leak"
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
)

func TestLeaseExistsWhileItIsTrusted(t *testing.T) {
	for _, s := range underRace([]scenario{wide, long}, 2) {
		m := model{scenario: s}
		states, latest, wrong := m.search()
		t.Logf("%+v: %d states", s, states)
		if wrong != "" {
			t.Errorf("trusted, and revoked:\n\t%s", wrong)
		}
		if latest != s.horizon+s.trust {
			t.Errorf("trusted until %d at most, want %d: renewals do not count", latest, s.horizon+s.trust)
		}
	}
}

func TestEachBrokenRuleIsNoticed(t *testing.T) {
	for _, r := range underRace([]rule{
		termsAreNotCompared, olderAckCounts, countsFromLaterSend, countsFromAck, countsFromProof, countsFromOldProof,
		countsFromLatestCopy, lossIsNotFinal, ackIsEnough, ackCountsFromItsReply,
		serializableRead, readWithoutQuorum, shortPromotion, noPromotion, ackHeaderIsLater, proofHeaderIsOlder,
	}, 4) {
		t.Run(string(r), func(t *testing.T) {
			m := model{scenario: short, broken: r}
			if r == countsFromLatestCopy {
				m.scenario = wide
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
// its full TTL since. And a session has lost its lease before that expires by the clock of the leader that leads.
func TestRulesThatAreNotNeeded(t *testing.T) {
	for _, r := range underRace([]rule{olderProofCounts, expiredIsRenewed}, 2) {
		t.Run(string(r), func(t *testing.T) {
			m := model{scenario: short, broken: r}
			if _, _, wrong := m.search(); wrong != "" {
				t.Errorf("trusted, and revoked:\n\t%s", wrong)
			}
		})
	}
}
