package permits_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/permits"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/internal/txns"
)

func TestMain(m *testing.M) { leak.Main(m) }

var at = layout.Named("holdfast", holdfast.KindSemaphore, "x")

// The youngest may hold without a mark if there was room for it at any limit at which it may have been put.
func TestYoungestPermitMayHoldIfThereWasRoom(t *testing.T) {
	for name, c := range map[string]struct {
		weights []int
		limit   layout.Limit
		want    bool
	}{
		"there is room":                         {[]int{1, 2}, layout.Limit{Permits: 3, High: 3, Mod: 5}, true},
		"there is none":                         {[]int{2, 2}, layout.Limit{Permits: 3, High: 3, Mod: 5}, false},
		"there was room, before it was lowered": {[]int{2, 2}, layout.Limit{Permits: 3, High: 4, Mod: 20}, true},
		"it was lowered before the permit came": {[]int{2, 2}, layout.Limit{Permits: 3, High: 4, Mod: 5}, false},
		"there was none at the highest":         {[]int{2, 3}, layout.Limit{Permits: 3, High: 4, Mod: 20}, false},
	} {
		s := permits.Seen{Limit: c.limit}
		for i, weight := range c.weights {
			s.Youngest = &mvccpb.KeyValue{
				Key: fmt.Appendf(nil, "%s%d-%x-AAAAAAAAAAAAAAAA", at.Entries, weight, i+1), CreateRevision: int64(10 + i),
			}
			s.Ahead = append(s.Ahead, s.Youngest)
		}
		if s.MayHold() != c.want {
			t.Errorf("%s: may hold is %v", name, !c.want)
		}
	}
}

// What is read is as many permits as the limit may be, and the limit is put where there is none.
func TestSeeReadsAsManyPermitsAsTheLimitMayBe(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		limit := permits.New(p.Host, at, 2)
		see := func() (permits.Seen, error) {
			return limit.See(t.Context(), 0, 0, func(ctx context.Context, ask txns.Ops) (txns.Reply, error) {
				return txns.Read(ctx, p.Host.Sender(), ask...)
			})
		}
		for n := range 5 {
			seen, err := see()
			if err != nil || len(seen.Ahead) != min(n, 3) || seen.All != (n < 3) || seen.Limit.Permits != 2 ||
				seen.Count != int64(n) {
				t.Errorf("of %d permits %d were read, all %v, at limit %v: %v", n, len(seen.Ahead), seen.All, seen.Limit, err)
			}
			kit.JoinPermit(t, srv, at.Entries, 1)
		}
		kit.SetLimit(t, srv, 4, 4) // by another process
		if seen, err := see(); err != nil || len(seen.Ahead) != 5 || seen.Limit.Permits != 4 {
			t.Errorf("after a higher limit %d permits were read, at limit %v: %v", len(seen.Ahead), seen.Limit, err)
		}
		var other *holdfast.LimitError
		if err := limit.Resize(t.Context(), 3); !errors.As(err, &other) || other.Limit != 4 || other.Weight != 0 {
			t.Errorf("Resize of a limit that another process has changed: %v", err)
		}
		if err := permits.New(p.Host, at, 4).Resize(t.Context(), 3); err != nil {
			t.Error(err)
		}
		if n, err := limit.Read(t.Context()); n != 3 || err != nil {
			t.Errorf("the limit is %d: %v", n, err)
		}
	})
}
