package queue

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// A look asks once about each session whose dead claims decide when it may hold. First come the sessions that were
// never asked about, so that those that live do not keep others from their turn.
func TestLookAsksAboutEachSessionThatDecides(t *testing.T) {
	t.Parallel()
	const rest = "AAAAAAAAAAAAAAA" // of the random part of a key
	long := func(text string) string { return strings.Replace(text, "@", rest+"@", 1) }
	began := time.Now()
	for name, c := range map[string]struct {
		at       layout.Keyspace
		ahead    string
		claims   string // ID@REVISION; then "!": acquitted, "+": its session key has gone, "?": that stands
		most     int
		wantKeys string
	}{
		"nothing":                               {lockX, "", "", 9, ""},
		"the claim of the entry ahead":          {lockX, "a1-A@5", "", 9, "a1-A"},
		"a foreign entry ahead":                 {lockX, "host@5", "", 9, ""},
		"one of each session":                   {lockX, "", "a1-A@5 a1-B@6 a2-A@7 a1-C@8", 9, "a1-A a2-A"},
		"that of the entry ahead speaks first":  {lockX, "a1-A@5", "a1-B@6 a2-A@7", 9, "a1-A a2-A"},
		"not one that never held":               {lockX, "", "a1-A@5 a2-A@7!", 9, "a1-A"},
		"not one whose session key has gone":    {lockX, "", "a1-A@5+ a2-A@7", 9, "a2-A"},
		"those that were asked about come last": {lockX, "", "a1-A@5? a2-A@7 a3-A@8? a4-A@9", 9, "a2-A a4-A a1-A a3-A"},
		"no more than there is room for":        {lockX, "", "a1-A@5? a2-A@7 a3-A@8? a4-A@9", 3, "a2-A a4-A a1-A"},
	} {
		e := &entry{Queue: &Queue{scope: scope{At: c.at}, host: &lease.Host{Env: new(lease.Env)}, shared: new(shared)}}
		if c.ahead != "" {
			e.ahead = parseKey(c.at, long(c.ahead), false)
		}
		for _, text := range strings.Fields(c.claims) {
			kv := parseKey(c.at, long(strings.TrimRight(text, "!+?")), true)
			dead := deadClaim{key: string(kv.Key), rev: kv.CreateRevision, acquitted: strings.HasSuffix(text, "!")}
			e.claims = append(e.claims, dead)
			e.Queue.shared.delays.noteDead([]deadClaim{dead}, 0, began)
			if strings.HasSuffix(text, "+") || strings.HasSuffix(text, "?") {
				gone := strings.HasSuffix(text, "+")
				e.Queue.shared.delays.noteExamined([]deadClaim{dead}, layout.Claim{}, 0, gone, began)
			}
		}
		var got []string
		for _, claim := range e.examine(new(requests.Ops), c.most) {
			got = append(got, strings.TrimSuffix(strings.TrimPrefix(c.at.EntryOf(claim.key), c.at.Entries), rest))
		}
		if want := strings.Fields(c.wantKeys); !slices.Equal(got, want) {
			t.Errorf("%s: asks about %v, want %v", name, got, want)
		}
	}
}

// A look asks what the claim of the entry ahead says, before it knows that an Attach has put that claim again. The
// claim is another session's then, and speaks for itself alone.
func TestClaimThatWasMovedSpeaksForItselfAlone(t *testing.T) {
	t.Parallel()
	const ofA, asked = "a1-AAAAAAAAAAAAAAAA@5", 0xb2
	e := &entry{Queue: &Queue{scope: scope{At: lockX}, shared: new(shared)}}
	kv := parseKey(lockX, ofA, true)
	kv.Version, kv.Value = 2, []byte(layout.Claim{Session: asked}.Encode())
	moved := deadClaim{key: string(kv.Key), rev: 5, moved: true}
	other := deadClaim{key: string(parseKey(lockX, "a1-BAAAAAAAAAAAAAAA@7", true).Key), rev: 7}
	e.claims = []deadClaim{moved, other}
	e.Queue.shared.delays.noteDead(e.claims, 0, time.Now())
	r := reads(lockX, "", "")
	r.Range(0).Kvs = append(r.Range(0).Kvs, kv)
	e.noteExamined(r, 0, []deadClaim{{key: moved.key, rev: moved.rev, asked: asked}}, time.Now())
	if d := e.Queue.shared.delays.get(moved); !d.examined || d.gone.IsZero() {
		t.Errorf("of the one that was moved %+v is known", d)
	}
	if d := e.Queue.shared.delays.get(other); d.examined || d.says.Session != 0 {
		t.Errorf("of another one of the session %+v is known", d)
	}
}
