package queue

import (
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdfake"
)

// So many sessions are judged one by one. Of more, one is presumed to have ended.
func TestOthersAheadAreRememberedUpToABound(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := start(t, srv).queue("x")
		entry := func(lease int) *mvccpb.KeyValue {
			return &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%s!s%x-AAAAAAAAAAAAAAAA", entriesX, lease+1)}
		}
		var r othersAhead
		for i := range maxRemembered {
			r = r.with(q, []*mvccpb.KeyValue{entry(i), entry(i)})
		}
		if r.unknown || len(r.sessions) != maxRemembered {
			t.Errorf("of %d sessions %d are remembered, unknown %v", maxRemembered, len(r.sessions), r.unknown)
		}
		if r = r.with(q, []*mvccpb.KeyValue{entry(maxRemembered)}); !r.unknown || len(r.sessions) != 0 {
			t.Errorf("of %d sessions %d are remembered, unknown %v", maxRemembered+1, len(r.sessions), r.unknown)
		}
	})
}
