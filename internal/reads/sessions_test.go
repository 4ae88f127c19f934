package reads_test

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/leak"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/txns"
)

func TestMain(m *testing.M) { leak.Main(m) }

var at = layout.Named("holdfast", holdfast.KindLock, "x")

// So many sessions are judged one by one. Of more, one is presumed to have ended.
func TestSessionsAreRememberedUpToABound(t *testing.T) {
	entry := func(lease int) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%s!s%x-AAAAAAAAAAAAAAAA", at.Entries, lease+1)}
	}
	var r reads.Sessions
	for i := range reads.MaxRemembered {
		r = r.With([]*mvccpb.KeyValue{entry(i), entry(i)})
	}
	if r.Unknown || len(r.Leases) != reads.MaxRemembered {
		t.Errorf("of %d sessions %d are remembered, unknown %v", reads.MaxRemembered, len(r.Leases), r.Unknown)
	}
	if r = r.With([]*mvccpb.KeyValue{entry(reads.MaxRemembered)}); !r.Unknown || len(r.Leases) != 0 {
		t.Errorf("of %d sessions %d are remembered, unknown %v", reads.MaxRemembered+1, len(r.Leases), r.Unknown)
	}
}

// What is read may be cut off after so many entries, whosever they are.
func TestSessionsOfMoreEntriesThanAreReadAreUnknown(t *testing.T) {
	entry := &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%s!s1-AAAAAAAAAAAAAAAA", at.Entries)}
	for n, unknown := range map[int]bool{reads.MaxRemembered: false, reads.MaxRemembered + 1: true} {
		if r := (reads.Sessions{}).With(slices.Repeat([]*mvccpb.KeyValue{entry}, n)); r.Unknown != unknown {
			t.Errorf("%d entries of one session: unknown %v", n, r.Unknown)
		}
	}
}

// Whose keys are gone is read in groups, and said of the right ones.
func TestAbsentSessionsAreFound(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		cli := srv.Client(t)
		keyOf := func(id clientv3.LeaseID) string { return fmt.Sprintf("session/%x", int64(id)) }
		var entries []*mvccpb.KeyValue
		var gone []clientv3.LeaseID
		for id := clientv3.LeaseID(2*txns.MaxOps + 50); id > 0; id-- { // not in order
			entry := &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%s%x-AAAAAAAAAAAAAAAA", at.Entries, int64(id))}
			entries = append(entries, entry, entry)
			if id%7 == 0 || id == txns.MaxOps+1 { // the first of the second group, but not of the first
				gone = append([]clientv3.LeaseID{id}, gone...)
			} else if _, err := cli.Put(t.Context(), keyOf(id), ""); err != nil {
				t.Fatal(err)
			}
		}
		entries = append(entries, entries[0]) // once more, far from the first
		r := reads.Sessions{}.With(entries)
		var ask txns.Ops
		asked := r.Ask(keyOf, &ask, 0)
		resp, err := cli.Txn(t.Context()).Then(ask...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		got := r.Absent(txns.Reply{Header: resp.Header, Responses: resp.Responses}, asked)
		if !slices.Equal(got, gone) || len(r.Leases) != 2*txns.MaxOps+50 {
			t.Errorf("of %d sessions absent are %v, want %v", len(r.Leases), got, gone)
		}
	})
}

// A writer judges the readers that stood ahead by their session keys. If there were more than it reads, one that it
// has not read may have been revoked.
func TestWriterKnowsThatMoreReadersStoodAheadThanItJudges(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		writer, cli := reads.Scope{At: at}, srv.Client(t)
		for n := 1; n <= reads.MaxRemembered+2; n++ {
			kit.JoinReader(t, srv, at.Entries)
			if n < reads.MaxRemembered {
				continue
			}
			created := int64(0)
			for _, kv := range srv.Keys(at.Entries) {
				created = max(created, kv.CreateRevision)
			}
			resp, err := cli.Do(t.Context(), writer.OthersAhead(created+1))
			if err != nil {
				t.Fatal(err)
			}
			kvs := resp.Get().Kvs
			if len(kvs) != min(n, reads.MaxRemembered+1) {
				t.Errorf("of %d readers ahead %d were read, want one more than %d at most", n, len(kvs), reads.MaxRemembered)
			}
			others := reads.Sessions{}.With(kvs)
			if unknown := n > reads.MaxRemembered; others.Unknown != unknown || !unknown && len(others.Leases) != n {
				t.Errorf("of %d readers ahead %d sessions are known, unknown %v", n, len(others.Leases), others.Unknown)
			}
		}
	})
}
