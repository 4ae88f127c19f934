package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/requests"
)

var (
	lockX    = layout.Named("holdfast", holdfast.KindLock, "x")
	foreignX = layout.At("holdfast", holdfast.KindLock, "theirs/x")
)

// putBoth puts an entry and its claim as an attempt does, and returns their create revision.
func putBoth(t *testing.T, cli *clientv3.Client, at layout.Keyspace, id string) int64 {
	t.Helper()
	key := at.Entries + id
	r, err := cli.Txn(t.Context()).Then(clientv3.OpPut(key, "v"), clientv3.OpPut(at.ClaimKey(key), "v")).Commit()
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// idsOf returns the last parts of keys, those of claims with a "~".
func idsOf(at layout.Keyspace, kvs []*mvccpb.KeyValue) (ids []string) {
	for _, kv := range kvs {
		key := string(kv.Key)
		if at.IsClaim(key) {
			ids = append(ids, strings.TrimPrefix(at.EntryOf(key), at.Entries)+"~")
		} else {
			ids = append(ids, strings.TrimPrefix(key, at.Entries))
		}
	}
	return ids
}

// Each read finds the entries, or the claims, that its name says. Nothing else of the name counts: the keys beside it,
// and the claims among the entries, or the other way round.
func TestReadsFindWhatTheyName(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		at, cli, revisions := lockX, srv.Client(t), make(map[string]int64)
		for _, id := range []string{"!s1-a", "2-b", "!s2-c", "1-d", "!s1-e", "2-f"} {
			revisions[id] = putBoth(t, cli, at, id)
		}
		before := revisions["2-f"]
		for _, id := range []string{"2-b", "!s1-e"} {
			srv.Delete(at.Entries + id)
		}
		for _, beside := range []string{"@epoch", "/@run", "/y/@/9-z", "/y/@claim/9-z"} {
			srv.Put("holdfast/lock/x"+beside, "") // beside the name, of it, and of one below it
		}
		writer, reader, election := scope{At: at}, scope{At: at, Reader: true}, scope{At: at}
		election.At.Kind = holdfast.KindElection // which has no readers
		for name, c := range map[string]struct {
			op   clientv3.Op
			want string
		}{
			"the oldest":                            {writer.oldest(), "!s1-a !s2-c"},
			"the oldest of an election":             {election.oldest(), "!s1-a"},
			"the nearest, of a writer":              {writer.nearest(before), "1-d"},
			"the nearest, of a reader":              {reader.nearest(before), "1-d"},
			"the nearest, of an older reader":       {reader.nearest(revisions["1-d"]), ""},
			"the nearest, of an older writer":       {writer.nearest(revisions["1-d"]), "!s2-c"},
			"the youngest of all":                   {writer.nearest(0), "2-f"},
			"all ahead, of a writer":                {writer.ahead(before), "!s1-a !s2-c 1-d"},
			"all ahead, of a reader":                {reader.ahead(before), "1-d"},
			"all":                                   {writer.ahead(0), "!s1-a !s2-c 1-d 2-f"},
			"the claims ahead of a writer":          {writer.claimsAhead(before), "1-d~ 2-b~ !s1-a~ !s1-e~ !s2-c~"},
			"the claims ahead of a reader":          {reader.claimsAhead(before), "1-d~ 2-b~"},
			"the claims ahead of an older reader":   {reader.claimsAhead(revisions["1-d"]), "2-b~"},
			"the claims ahead, not the entry's own": {writer.claimsAhead(revisions["!s1-a"]), ""},
		} {
			resp, err := cli.Do(t.Context(), c.op)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := idsOf(at, resp.Get().Kvs); !slices.Equal(got, strings.Fields(c.want)) {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	})
}

// What a put reads says whether anything conflicts, and which entry is the nearest: not if both of the two youngest
// keys are claims.
func TestYoungestTellsThePutWhatIsAhead(t *testing.T) {
	for name, c := range map[string]struct {
		ids     string // "~": dead
		entry   string // for a writer
		readers string // for a reader
		free    string // for whom nothing conflicts
		known   string // for whom it is known that no entry, or which, is ahead
	}{
		"nothing":                      {free: "both", known: "both"},
		"a writer":                     {ids: "1-a", entry: "1-a", readers: "1-a", known: "both"},
		"a reader":                     {ids: "!s1-a", entry: "!s1-a", free: "reader", known: "both"},
		"a dead writer":                {ids: "1-a~"},
		"a dead reader":                {ids: "!s1-a~", free: "reader", known: "reader"},
		"a writer, and a reader":       {ids: "1-a !s2-b", entry: "!s2-b", readers: "1-a", known: "both"},
		"two dead behind a writer":     {ids: "1-a 2-b~ 3-c~"},
		"dead readers behind a writer": {ids: "1-a !s2-b~ !s3-c~", readers: "1-a", known: "reader"},
		"one dead ahead of a writer":   {ids: "2-b~ 1-a", entry: "1-a", readers: "1-a", known: "both"},
		"many dead ahead of a writer":  {ids: "2-b~ 3-c~ 4-d~ 1-a", entry: "1-a", readers: "1-a", known: "both"},
		"many readers behind a writer": {ids: "1-a !s2-b !s3-c !s4-d", entry: "!s4-d", readers: "1-a", known: "both"},
	} {
		for _, at := range []layout.Keyspace{lockX, foreignX} {
			if at.Foreign && strings.Contains(c.ids, "~") {
				continue // there its entry is read apart
			}
			t.Run(fmt.Sprintf("%s, foreign %v", name, at.Foreign), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					cli := srv.Client(t)
					for _, id := range strings.Fields(c.ids) {
						id, dead := strings.CutSuffix(id, "~")
						putBoth(t, cli, at, id)
						if dead {
							srv.Delete(at.Entries + id)
						}
					}
					for _, s := range []scope{{At: at}, {At: at, Reader: true}} {
						r, err := cli.Txn(t.Context()).Then(s.youngestKeys()...).Commit()
						if err != nil {
							t.Fatal(err)
						}
						ahead, claims, _ := s.before(requests.Reply{Header: r.Header, Responses: r.Responses}, 0)
						who, want := "writer", c.entry
						if s.Reader {
							who, want = "reader", c.readers
						}
						entry := ""
						if ahead != nil {
							entry = strings.TrimPrefix(string(ahead.Key), at.Entries)
						}
						free := ahead == nil && len(claims) == 0
						if entry != want || free != (c.free == "both" || c.free == who) {
							t.Errorf("a %s: behind %q, free %v; want %q, %q", who, entry, free, want, c.free)
						}
						if known := len(claims) == 0; known != (c.known == "both" || c.known == who) {
							t.Errorf("a %s: what is ahead is known: %v", who, known)
						}
					}
				})
			})
		}
	}
}
