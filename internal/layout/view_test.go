package layout

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/view"
)

// queueOf returns a queue whose values are candidates' data and nothing else, or one of a lock.
func queueOf(verbatim bool) Keyspace {
	if verbatim {
		return At("holdfast", "election", "x")
	}
	return Named("holdfast", "lock", "x")
}

// An entry of another client, and a candidate's below a foreign prefix, have no fields but their value.
func TestViewShowsOfAnEntryWhatIsKnown(t *testing.T) {
	t.Parallel()
	const ours = "694d7fe4a5d9e103-AAAAAAAAAAAAAAAA"
	value := Value{Queued: time.UnixMilli(1000), Data: "data"}
	value.Owner = "me"
	long := strings.Repeat("x", MaxData+1)
	for name, c := range map[string]struct {
		key, value             string
		verbatim               bool
		want                   string // the value
		owner, foreign, shared bool
	}{
		"ours":                   {key: ours, value: value.Encode(), want: "data", owner: true},
		"a reader":               {key: "!s" + ours, value: value.Encode(), want: "data", owner: true, shared: true},
		"ours, of another form":  {key: ours, value: "something"},
		"another client's":       {key: "694d7fe4a5d9e103", value: "theirs", want: "theirs", foreign: true},
		"another client's, long": {key: "694d7fe4a5d9e103", value: long, want: long[1:], foreign: true},
		"reader's mark, foreign": {key: "!s694d7fe4a5d9e103", value: "theirs", want: "theirs", foreign: true},
		"a candidate's value":    {key: ours, value: value.Encode(), verbatim: true, want: value.Encode()},
	} {
		kv := &mvccpb.KeyValue{Key: []byte("x/" + c.key), Value: []byte(c.value), CreateRevision: 7, Lease: 8}
		e := queueOf(c.verbatim).View(kv)
		if e.Key != "x/"+c.key || e.Revision != 7 || e.Lease != 8 || e.Value != c.want ||
			(e.Owner == "me") != c.owner || e.QueuedAt.IsZero() == c.owner || e.Foreign != c.foreign || e.Shared != c.shared {
			t.Errorf("%s: %+v", name, e)
		}
	}
	sem := Named("holdfast", "semaphore", "x")
	if e := sem.View(&mvccpb.KeyValue{Key: []byte("x/3-" + ours)}); e.Weight != 3 || e.Foreign {
		t.Errorf("a permit of weight 3: %+v", e)
	}
}

func TestViewOfAnEntry(t *testing.T) {
	t.Parallel()
	ours := "holdfast/lock/x/@/5eed-AAAAAAAAAAAAAAAA"
	value := Value{Queued: time.Now(), Data: "data", Identity: Identity{Owner: "me"}}.Encode()
	long := strings.Repeat("v", MaxData+1)
	for name, c := range map[string]struct {
		key, value string
		verbatim   bool
		want       view.Entry
	}{
		"ours":                        {ours, value, false, view.Entry{Owner: "me", Value: "data"}},
		"ours, of another form":       {ours, "plain", false, view.Entry{}},
		"a candidate's, verbatim":     {ours, value, true, view.Entry{Value: value}},
		"plain, verbatim":             {ours, "plain", true, view.Entry{Value: "plain"}},
		"of another client":           {"x/5eed", "plain", false, view.Entry{Value: "plain", Foreign: true}},
		"of another client, too long": {"x/5eed", long, false, view.Entry{Value: long[:MaxData], Foreign: true}},
		"of another client, our form": {"x/5eed", value, false, view.Entry{Owner: "me", Value: "data", Foreign: true}},
	} {
		got := queueOf(c.verbatim).View(&mvccpb.KeyValue{Key: []byte(c.key), Value: []byte(c.value)})
		if got.Owner != c.want.Owner || got.Value != c.want.Value || got.Foreign != c.want.Foreign {
			t.Errorf("%s: owner %q, value %.20q, foreign %v", name, got.Owner, got.Value, got.Foreign)
		}
	}
}
