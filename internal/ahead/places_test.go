package ahead

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"

	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/view"
)

// Entries of one create revision are those of one attempt.
func TestAttemptsWithSeveralEntriesAreCountedOnce(t *testing.T) {
	t.Parallel()
	var entries []*mvccpb.KeyValue
	for _, created := range []int64{4, 4, 7, 9, 9} {
		entries = append(entries, &mvccpb.KeyValue{CreateRevision: created})
	}
	if n := attempts(entries); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
}

func TestErrorGivesAwayItsPlace(t *testing.T) {
	bare, place := errors.New("the cause"), view.Place{Ahead: 3}
	placed := &Error{place, bare}
	if !errors.Is(placed, bare) || placed.Error() != bare.Error() {
		t.Errorf("%v hides its cause", placed)
	}
	if p, err := Without(fmt.Errorf("around it: %w", placed)); p != place || err != bare {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := Without(bare); p != (view.Place{}) || err != bare {
		t.Errorf("without a place: %+v, %v", p, err)
	}
}

func TestPlaceCountsNoMoreThanItsBound(t *testing.T) {
	t.Parallel()
	for count, want := range map[int64]int{
		view.MaxAhead - 1: view.MaxAhead - 1, view.MaxAhead: view.MaxAhead, view.MaxAhead + 5: view.MaxAhead,
	} {
		if got := (Ahead{Count: count, At: time.Now()}).Place(Scope{}).Ahead; got != want {
			t.Errorf("%d ahead are told as %d, want %d", count, got, want)
		}
	}
}

// Look finds who holds, and how many attempts stand ahead.
func TestLookFindsWhoIsAhead(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		at, cli := layout.Named("holdfast", holdfast.KindLock, "x"), srv.Client(t)
		var created []int64
		for _, endings := range [][]string{{"1-a"}, {"2-b", "!s2-b"}, {"!s3-c"}, {"4-d"}} {
			created = append(created, putTogether(t, cli, at.Entries, endings))
		}
		for name, c := range map[string]struct {
			reader bool
			rev    int64
			count  int64
			holder bool
		}{
			"of all":                         {false, 0, 4, true},
			"of the first":                   {false, created[0], 0, false},
			"of the last":                    {false, created[3], 3, true},
			"of a reader behind two writers": {true, created[2], 2, true},
		} {
			s := Scope{At: at, Reader: c.reader}
			look := Look(s, c.rev)
			r, err := cli.Txn(t.Context()).Then(look[:]...).Commit()
			if err != nil {
				t.Fatal(err)
			}
			a := Read(s, requests.Reply{Header: r.Header, Responses: r.Responses}, 0, c.rev, nil)
			if a.Count != c.count || (a.Holder != nil) != c.holder || !a.At.Equal(time.Now()) {
				t.Errorf("%s: %d ahead, holder %v; want %d, %v", name, a.Count, a.Holder, c.count, c.holder)
			}
			if a.Holder != nil && a.Holder.CreateRevision != created[0] {
				t.Errorf("%s: the holder is the one that was created at %d", name, a.Holder.CreateRevision)
			}
		}
		for i := range MaxCounted { // more than are read one by one: one more entry than attempts
			putTogether(t, cli, at.Entries, []string{fmt.Sprint("5-", i)})
		}
		look := Look(Scope{At: at}, 0)
		r, err := cli.Txn(t.Context()).Then(look[:]...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		a := Read(Scope{At: at}, requests.Reply{Header: r.Header, Responses: r.Responses}, 0, 0, nil)
		if all := int64(4 + MaxCounted); a.Count < all || a.Count > all+1 {
			t.Errorf("of %d attempts %d are counted", all, a.Count)
		}
	})
}

// putTogether puts keys in one Txn, and returns its revision.
func putTogether(t *testing.T, cli *clientv3.Client, prefix string, endings []string) int64 {
	t.Helper()
	var puts []clientv3.Op
	for _, ending := range endings {
		puts = append(puts, clientv3.OpPut(prefix+ending, ""))
	}
	r, err := cli.Txn(t.Context()).Then(puts...).Commit()
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}
