package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
		r := requests.Reply{Responses: []*pb.ResponseOp{rangeOf(0), rangeOf(count)}}
		if got := (scope{}).placeIn(r, 0, 0, nil).Ahead; got != want {
			t.Errorf("%d ahead are told as %d, want %d", count, got, want)
		}
	}
}

// rangeOf is the reply to a read of that many keys, none of which it has.
func rangeOf(count int64) *pb.ResponseOp {
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Count: count}}}
}

// placeReads finds who holds, and how many attempts stand ahead.
func TestPlaceFindsWhoIsAhead(t *testing.T) {
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
			q := scope{At: at, Reader: c.reader}
			r, err := cli.Txn(t.Context()).Then(q.placeReads(c.rev)...).Commit()
			if err != nil {
				t.Fatal(err)
			}
			reply := requests.Reply{Header: r.Header, Responses: r.Responses}
			holder, count := q.aheadIn(reply, 0, c.rev)
			if count != c.count || (holder != nil) != c.holder {
				t.Errorf("%s: %d ahead, holder %v; want %d, %v", name, count, holder, c.count, c.holder)
			}
			if holder != nil && holder.CreateRevision != created[0] {
				t.Errorf("%s: the holder is the one that was created at %d", name, holder.CreateRevision)
			}
			if p := q.placeIn(reply, 0, c.rev, nil); !p.Seen.Equal(time.Now()) {
				t.Errorf("%s: seen at %v", name, p.Seen)
			}
		}
		for i := range maxCounted { // more than are read one by one: one more entry than attempts
			putTogether(t, cli, at.Entries, []string{fmt.Sprint("5-", i)})
		}
		q := scope{At: at}
		r, err := cli.Txn(t.Context()).Then(q.placeReads(0)...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		_, n := q.aheadIn(requests.Reply{Header: r.Header, Responses: r.Responses}, 0, 0)
		if all := int64(4 + maxCounted); n < all || n > all+1 {
			t.Errorf("of %d attempts %d are counted", all, n)
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
