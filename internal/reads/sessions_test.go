package reads_test

import (
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/leak"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/internal/reads"
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
