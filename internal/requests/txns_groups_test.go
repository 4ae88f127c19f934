package requests_test

import (
	"fmt"
	"github.com/holdfast-go/holdfast/internal/requests"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func TestGroupsAreInsideOtherTxnsOnlyIfThereIsNoRoom(t *testing.T) {
	for name, c := range map[string]struct {
		sizes  []int
		kind   string
		before int // operations that the Txn has already
	}{
		"one":            {sizes: []int{1}, kind: "read"},
		"all but full":   {sizes: []int{40, 0, 59}, before: 1, kind: "read"},
		"one too many":   {sizes: []int{40, 0, 60}, before: 1, kind: "committed read"},
		"more than once": {sizes: []int{requests.MaxOps, requests.MaxOps}, kind: "committed read"},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, ctx := kit.Start(t, srv), kit.Within(t, time.Minute)
				key := func(group, i int) string { return fmt.Sprint("key/", group, "/", i) }
				var ask requests.Ops
				for range c.before {
					ask.Add(clientv3.OpGet("another"))
				}
				groups := make([][]clientv3.Op, len(c.sizes))
				for g, size := range c.sizes {
					for i := range size {
						groups[g] = append(groups[g], clientv3.OpGet(key(g, i)))
					}
				}
				last := len(c.sizes) - 1
				if _, err := p.Host.Client.Put(ctx, key(last, c.sizes[last]-1), ""); err != nil {
					t.Fatal(err)
				}
				asked := ask.AddGroups(groups)
				p.Plan(nil)
				r, err := requests.Txn{Then: ask}.Ask(ctx, p.Host.Sender, requests.Read)
				if err != nil {
					t.Fatal(err)
				}
				if n := p.Counts()[c.kind]; n != 1 {
					t.Errorf("sent %v, want one %s", p.Counts(), c.kind)
				}
				for g, size := range c.sizes {
					of := asked.Of(r, g)
					if len(of.Responses) != size {
						t.Errorf("group %d has %d replies, want %d", g, len(of.Responses), size)
					}
					for i := range of.Responses {
						if found, want := of.First(i) != nil, g == last && i == size-1; found != want {
							t.Errorf("%s: found %v, want %v", key(g, i), found, want)
						}
					}
				}
			})
		})
	}
}
