package reads_test

import (
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/reads"
)

// Each read finds the entries that its name says, of those that stand and of those that stood.
func TestReadsFindTheEntriesThatTheyName(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		cli, revisions := srv.Client(t), make(map[string]int64)
		for _, id := range []string{"!s1-a", "2-b", "!s2-c", "1-d", "!s1-e", "2-f"} {
			resp, err := cli.Put(t.Context(), at.Entries+id, "")
			if err != nil {
				t.Fatal(err)
			}
			revisions[id] = resp.Header.Revision
		}
		before := revisions["2-f"]
		for _, id := range []string{"2-b", "!s1-e"} {
			if _, err := cli.Delete(t.Context(), at.Entries+id); err != nil {
				t.Fatal(err)
			}
		}
		writer, reader, election := reads.Scope{At: at}, reads.Scope{At: at, Reader: true}, reads.Scope{At: at}
		election.At.Kind = holdfast.KindElection // which has no readers
		for name, c := range map[string]struct {
			ops  []clientv3.Op
			want string
		}{
			"the oldest":                            {[]clientv3.Op{writer.Oldest()}, "!s1-a !s2-c"},
			"the oldest of an election":             {[]clientv3.Op{election.Oldest()}, "!s1-a"},
			"the youngest, of a writer":             {[]clientv3.Op{writer.Youngest()}, "2-f"},
			"the youngest, of a reader":             {[]clientv3.Op{reader.Youngest()}, "2-f"},
			"the nearest, of a writer":              {[]clientv3.Op{writer.Nearest(before-1, 0)}, "1-d"},
			"the nearest then, of a writer":         {[]clientv3.Op{writer.Nearest(before-1, before)}, "!s1-e"},
			"the nearest then, of a reader":         {[]clientv3.Op{reader.Nearest(revisions["!s2-c"], before)}, "2-b"},
			"the youngest ahead":                    {[]clientv3.Op{writer.YoungestAhead(revisions["1-d"]-1, 0)}, "!s2-c"},
			"the oldest of those ahead":             {[]clientv3.Op{writer.OldestAhead(0, before, 2)}, "!s1-a 2-b"},
			"all ahead, the oldest first":           {[]clientv3.Op{writer.OldestAhead(before-1, 0, 0)}, "!s1-a !s2-c 1-d"},
			"the readers ahead of a writer":         {[]clientv3.Op{writer.OthersAhead(before)}, "!s1-a !s1-e !s2-c"},
			"the readers ahead of an older writer":  {[]clientv3.Op{writer.OthersAhead(revisions["2-b"])}, "!s1-a"},
			"the writers ahead of a reader":         {[]clientv3.Op{reader.OthersAhead(revisions["!s1-e"])}, "1-d 2-b"},
			"the oldest of a session, for a writer": {writer.OldestOf(1, 0, before), "1-d !s1-a"},
			"the oldest of a session, for a reader": {reader.OldestOf(1, 0, before), "1-d"},
			"the oldest of a session, of the older": {writer.OldestOf(2, revisions["2-b"], before), "2-b"},
			"the oldest writer":                     {[]clientv3.Op{reader.OldestWriter(before)}, "2-b"},
			"the oldest writer after that":          {[]clientv3.Op{reader.OldestWriter(before + 1)}, "1-d"},
			"the oldest conflicting, of a writer":   {[]clientv3.Op{writer.OldestConflicting(before)}, "!s1-a"},
			"the oldest conflicting, of a reader":   {[]clientv3.Op{reader.OldestConflicting(before)}, "2-b"},
		} {
			var got []string
			for _, op := range c.ops {
				resp, err := cli.Do(t.Context(), op)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for _, kv := range resp.Get().Kvs {
					got = append(got, strings.TrimPrefix(string(kv.Key), at.Entries))
				}
			}
			if want := strings.Fields(c.want); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	})
}

// Keys are used again, so the deletion of an earlier entry is not the end of a later one at its key.
func TestEntryEndsWhenItsKeyIsDeletedAfterItWasCreated(t *testing.T) {
	t.Parallel()
	entry := &mvccpb.KeyValue{Key: []byte(at.Entries + "1-a"), CreateRevision: 10}
	deleted, put := clientv3.EventTypeDelete, clientv3.EventTypePut
	for name, c := range map[string]struct {
		kind     mvccpb.Event_EventType
		key      string
		revision int64
		want     bool
	}{
		"it is deleted":                       {deleted, "1-a", 11, true},
		"another one is deleted":              {deleted, "1-b", 11, false},
		"it is put once more":                 {put, "1-a", 11, false},
		"an earlier one was deleted":          {deleted, "1-a", 9, false},
		"an earlier one was deleted for this": {deleted, "1-a", 10, false},
	} {
		event := &clientv3.Event{
			Type: c.kind, Kv: &mvccpb.KeyValue{Key: []byte(at.Entries + c.key), ModRevision: c.revision},
		}
		if reads.IsEnd(event, entry) != c.want {
			t.Errorf("%s: that is its end is %v", name, !c.want)
		}
	}
}
