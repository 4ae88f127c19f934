package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/internal/layout"
)

// parseKey makes an entry, or its claim, of "ID@REVISION".
func parseKey(at layout.Keyspace, text string, claim bool) *mvccpb.KeyValue {
	id, rev, _ := strings.Cut(text, "@")
	kv := &mvccpb.KeyValue{Key: []byte(at.Entries + id)}
	_, _ = fmt.Sscan(rev, &kv.CreateRevision)
	if claim {
		kv.Key = []byte(at.ClaimKey(string(kv.Key)))
	}
	return kv
}

// Claims between the nearest entry ahead and the waiter are dead. Of these, one is acquitted if what stands, or its
// claim, is strictly older than it, and excludes it.
func TestDeadClaimsAndThoseThatNeverHeld(t *testing.T) {
	t.Parallel()
	at := lockX
	for name, c := range map[string]struct {
		entry  string // the nearest that stands
		claims string // of all ahead, in the order of their keys
		want   string // the dead ones in the order of their creation; "!": acquitted
	}{
		"nothing":                              {},
		"an entry alone":                       {entry: "1-a@10", claims: "1-a@10"},
		"one that held":                        {claims: "1-a@10", want: "1-a@10"},
		"one that held, and one behind it":     {claims: "1-a@10 2-b@12", want: "1-a@10 2-b@12!"},
		"they are ordered by age":              {claims: "1-a@14 2-b@12 3-c@10", want: "3-c@10 2-b@12! 1-a@14!"},
		"one that waits behind an entry":       {entry: "1-a@10", claims: "1-a@10 2-b@12", want: "2-b@12!"},
		"behind an entry without a claim":      {entry: "1-a@10", claims: "2-b@12", want: "2-b@12!"},
		"what is ahead of the entry is alive":  {entry: "3-c@14", claims: "1-a@10 2-b@16 3-c@14", want: "2-b@16!"},
		"readers beside one another held":      {claims: "!s1-a@10 !s2-b@12", want: "!s1-a@10 !s2-b@12"},
		"a reader behind a reader that stands": {entry: "!s1-a@10", claims: "!s1-a@10 !s2-b@12", want: "!s2-b@12"},
		"a writer behind a reader that stands": {entry: "!s1-a@10", claims: "2-b@12 !s1-a@10", want: "2-b@12!"},
		"a reader behind a writer that stands": {entry: "1-a@10", claims: "1-a@10 !s2-b@12", want: "!s2-b@12!"},
		"a reader behind a writer and readers": {claims: "2-b@12 !s1-a@10 !s3-c@14", want: "!s1-a@10 2-b@12! !s3-c@14!"},
		"a writer that holds, of a downgrade":  {claims: "1-a@10 !s1-a@10", want: "1-a@10 !s1-a@10"},
		"of a downgrade that waits":            {entry: "2-b@8", claims: "1-a@10 2-b@8 !s1-a@10", want: "1-a@10! !s1-a@10!"},
		"the same, the reader first":           {claims: "1-a@8 !s2-b@10 2-b@10", want: "1-a@8 !s2-b@10! 2-b@10!"},
		"of a downgrade behind one that held":  {claims: "1-a@8 2-b@10 !s2-b@10", want: "1-a@8 2-b@10! !s2-b@10!"},
		"one below a prefix within this one":   {claims: "1-a@10 b/2-b@12 3-c@14", want: "1-a@10 b/2-b@12 3-c@14!"},
		"a downgraded one acquits no reader":   {entry: "!s1-a@10", claims: "!s1-a@10 !s2-b@12", want: "!s2-b@12"},
	} {
		var entry *mvccpb.KeyValue
		if c.entry != "" {
			entry = parseKey(at, c.entry, false)
		}
		var claims []*mvccpb.KeyValue
		for _, text := range strings.Fields(c.claims) {
			claims = append(claims, parseKey(at, text, true))
		}
		var got []string
		for _, dead := range (scope{At: at}).dead(entry, claims) {
			text := fmt.Sprintf("%s@%d", strings.TrimPrefix(at.EntryOf(dead.key), at.Entries), dead.rev)
			if dead.acquitted {
				text += "!"
			}
			got = append(got, text)
		}
		if want := strings.Fields(c.want); !sameInAge(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// sameInAge compares what is ordered by age. The two entries of a Downgradable are of one age.
func sameInAge(got, want []string) bool {
	if slices.Equal(got, want) {
		return true
	}
	sorted := func(s []string) []string { return slices.Sorted(slices.Values(s)) }
	same := len(want) == 2 && strings.Split(want[0], "@")[1] == strings.Split(want[1], "@")[1]
	return same && slices.Equal(sorted(got), sorted(want))
}
