package layout

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
)

// Of a name, all claims are one range, and so are the entries and claims that conflict with a reader.
func TestClaimsAreMadeOfTheKeysOfTheirEntries(t *testing.T) {
	t.Parallel()
	const lease = 0x5eed
	named, foreign := Named("ns", "lock", "a/b"), At("ns", "lock", "theirs/x")
	for _, c := range []struct {
		q      Keyspace
		entry  string
		prefix string
		writer bool // its claim is in WritersClaims
	}{
		{named, named.Entries + NewID(lease), "ns/lock/a/b/@claim/5eed-", true},
		{named, named.ReaderKey(NewID(lease)), "ns/lock/a/b/@claim/s5eed-", false},
		{named, named.Entries + "no-id", "ns/lock/a/b/@claim/no-id", true},
		{foreign, foreign.Entries + NewID(lease), "ns/claim/theirs/x/5eed-", true},
		{foreign, foreign.ReaderKey(NewID(lease)), "ns/claim/theirs/x/!s5eed-", false},
		{foreign, foreign.Entries + "some/thing", "ns/claim/theirs/x/some/thing", true},
	} {
		claim := c.q.ClaimKey(c.entry)
		if !strings.HasPrefix(claim, c.prefix) || c.q.EntryOf(claim) != c.entry || !c.q.IsClaim(claim) ||
			c.q.IsClaim(c.entry) {
			t.Errorf("%s: claim %s, which is of %s", c.entry, claim, c.q.EntryOf(claim))
		}
		within := func(from, end string) bool { return from <= claim && claim < end }
		if !within(c.q.AllClaims()) || within(c.q.WritersClaims()) != c.writer || within(c.q.All()) {
			t.Errorf("%s is in the range of all %v, of writers' %v, of entries %v",
				claim, within(c.q.AllClaims()), within(c.q.WritersClaims()), within(c.q.All()))
		}
	}
	entries, end := named.Writers()
	claims, endOfClaims := named.WritersClaims()
	if _, all := named.All(); entries >= claims || all != end || end > claims || claims >= endOfClaims {
		t.Errorf("entries %s to %s, claims %s to %s: they are not neighbors", entries, end, claims, endOfClaims)
	}
	for _, between := range []string{named.RunKey(), named.LimitKey(), named.CountKey()} {
		if between >= end && between < claims {
			t.Errorf("%s stands between the entries and the claims", between)
		}
	}
}

// What a claim says is data of another client: it is bounded, and a value of another form says nothing.
func TestClaimSaysWhatItsHolderMustBeWaitedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []Claim{
		{}, {LockDelay: time.Second, ToldWithin: 7 * time.Second}, {ToldWithin: maxDelay, Session: 0x694d},
	} {
		if got := DecodeClaim([]byte(c.Encode())); got != c {
			t.Errorf("%+v is read as %+v", c, got)
		}
	}
	const more = `,"told_within_ms":6}`
	for value, want := range map[string]Claim{
		"": {}, "no JSON": {}, "[]": {}, `{"lock_delay_ms":"1"}`: {},
		`{"lock_delay_ms":-5,"told_within_ms":-1}`:                  {},
		`{"lock_delay_ms":9223372036854775807,"told_within_ms":1}`:  {maxDelay, time.Millisecond, 0},
		`{"lock_delay_ms":5,"told_within_ms":1,"later":1}`:          {5 * time.Millisecond, time.Millisecond, 0},
		`{"told_within_ms":1,"session":"694d"}`:                     {0, time.Millisecond, 0x694d},
		`{"told_within_ms":1,"session":"no lease"}`:                 {0, time.Millisecond, 0},
		`{"lock_delay_ms":5` + strings.Repeat(" ", maxValue) + more: {},
	} {
		if got := DecodeClaim([]byte(value)); got != want {
			t.Errorf("%.80q says %+v, want %+v", value, got, want)
		}
	}
}

// A claim that was put again may name another session. A mark puts that of a turn, and names none.
func TestClaimWasMovedIfItWasPutAgain(t *testing.T) {
	t.Parallel()
	permits := Named("holdfast", holdfast.KindSemaphore, "x")
	permit := permits.PermitKey(1, "694d-AAAAAAAAAAAAAAAA")
	lock, _ := Named("holdfast", holdfast.KindLock, "x").Keys("694d-AAAAAAAAAAAAAAAA")
	for claim, first := range map[string]int64{
		Named("holdfast", holdfast.KindLock, "x").ClaimKey(lock): 2, permits.ClaimKey(permit): 2,
		permits.ClaimKey(permits.TurnKey(permit)): 3,
	} {
		at, _ := About("holdfast", claim)
		for version := range int64(5) {
			kv := &mvccpb.KeyValue{Key: []byte(claim), Version: version}
			if WasMoved(at, kv) != (version >= first) {
				t.Errorf("%s, version %d: %v", claim, version, WasMoved(at, kv))
			}
		}
	}
}
