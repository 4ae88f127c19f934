package leasemodel

import "testing"

var (
	// The lease can be renewed twice and more, by leaders of three terms.
	long = scenario{horizon: 7, terms: 3, copies: 1}
	// Requests are sent again while the first copy is under way.
	wide = scenario{horizon: 4, terms: 2, copies: 2}
	// Enough to notice what has to be noticed.
	short = scenario{horizon: 6, terms: 3, copies: 1}
)

func TestLeaseExistsWhileItIsTrusted(t *testing.T) {
	for _, s := range []scenario{long, wide} {
		m := model{scenario: s}
		states, latest, wrong := m.search()
		t.Logf("%+v: %d states", s, states)
		if wrong != "" {
			t.Errorf("trusted, and revoked:\n\t%s", wrong)
		}
		if latest != s.horizon+ttl {
			t.Errorf("trusted until %d at most, want %d: renewals do not count", latest, s.horizon+ttl)
		}
	}
}

func TestEachBrokenRuleIsNoticed(t *testing.T) {
	for _, r := range []rule{
		termsAreNotCompared, olderAckCounts, countsFromLaterSend, countsFromAck, countsFromProof, countsFromOldProof,
		countsFromLatestCopy, lossIsNotFinal, ackIsEnough, ackCountsFromItsReply,
		serializableRead, readWithoutQuorum, shortPromotion, noPromotion, ackHeaderIsLater, proofHeaderIsOlder,
	} {
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
	for _, r := range []rule{olderProofCounts, expiredIsRenewed} {
		t.Run(string(r), func(t *testing.T) {
			m := model{scenario: short, broken: r}
			if _, _, wrong := m.search(); wrong != "" {
				t.Errorf("trusted, and revoked:\n\t%s", wrong)
			}
		})
	}
}
