package quietmodel

// What a leader writes into its own entry, where an administrator's notice may stand: Hold.Update of internal/hold.

// A proclaim is a put of the leader's, sent again until it is answered.
type proclaim struct {
	sent     bool
	compares int8 // the version that it replaces
	done     bool // the leader has proclaimed all that it will
}

func (m *model) proclaimSteps(s *state) {
	p := s.proclaim
	if !m.proclaims || !s.granted || p.done {
		return
	}
	if !p.sent {
		m.step(s, "the leader proclaims a value", func(t *state) {
			t.proclaim = proclaim{sent: true, compares: t.known}
		})
		return
	}
	if !m.commits(s) {
		return
	}
	if p.compares == s.version || m.broken == comparesEntryOnly {
		m.step(s, "a proclaim is carried out", func(t *state) {
			t.putValue()
			t.known = t.version
			t.proclaim = proclaim{done: true}
		})
		m.step(s, "a proclaim is carried out, and its reply is lost", func(t *state) {
			t.putValue()
			t.proclaim.compares = t.known
		})
		return
	}
	m.step(s, "a proclaim is refused", func(t *state) {
		switch {
		case !t.noticed: // an earlier copy of it was carried out
			t.known, t.proclaim = t.version, proclaim{done: true}
		case m.broken == refusedIsResent:
			t.known = t.version
			t.proclaim.compares = t.known
		default:
			t.told = true
		}
	})
}

// putValue replaces the value of the entry by one without a notice.
func (s *state) putValue() {
	s.version = min(s.version+1, maxVersion)
	s.replaced = s.replaced || s.noticed
	s.noticed = false
}

// maxVersion is enough for a notice, and two copies of a proclaim.
const maxVersion = 4

// sees is what the reply to a poll tells that has compared a version: a revocation, or a notice.
func (m *model) sees(t *state) {
	switch changed := t.version != t.poll.compares; {
	case t.revoked:
		t.told = true
	case changed && t.noticed && m.broken == knownBeforeTold:
		t.known, t.found = t.version, true
	case changed && t.noticed:
		t.told = true
	case changed: // by the leader itself
		t.known = t.version
	}
}
