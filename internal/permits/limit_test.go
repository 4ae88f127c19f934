package permits_test

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/permits"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

func TestMain(m *testing.M) { leak.Main(m) }

var at = layout.Named("holdfast", holdfast.KindSemaphore, "x")

// The program names the limit 2, and nothing is put but that.
func TestResizeChangesTheLimitThatTheProgramNames(t *testing.T) {
	for name, c := range map[string]struct {
		stands, meanwhile string // what is put as the limit, and while Resize runs; "-": it is deleted
		to                int
		want              string
		err               string
	}{
		"raised":                      {stands: "2", to: 3, want: "3"},
		"it is that already":          {stands: "3", to: 3, want: "3"},
		"there was none":              {to: 3, want: "3"},
		"there was none, and it is 2": {to: 2, want: "2"},
		"another process raises it":   {stands: "2", meanwhile: "3", to: 3, want: "3"},
		"it names another":            {stands: "4", to: 3, want: "4", err: "4"},
		"it is deleted meanwhile":     {stands: "2", meanwhile: "-", to: 3, want: "3"},
		"it cannot be a limit":        {stands: "many", to: 3, want: "many", err: `is "many": put a number`},
		"it is of format 1":           {stands: "2 2", to: 3, want: "2 2", err: `is "2 2": put a number`},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				if c.stands != "" {
					srv.Put(at.LimitKey(), c.stands)
				}
				p.KV.Refuse(func(ops []clientv3.Op) error {
					switch {
					case !ops[0].IsPut():
					case c.meanwhile == "-":
						srv.Delete(at.LimitKey())
					case c.meanwhile != "":
						srv.Put(at.LimitKey(), c.meanwhile)
					}
					return nil
				})
				err := permits.New(p.Host, at, 2).Resize(t.Context(), c.to)
				if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				got := ""
				for _, kv := range srv.Keys(at.LimitKey()) {
					got = string(kv.Value)
				}
				if got != c.want {
					t.Errorf("the limit is %q, want %q", got, c.want)
				}
			})
		})
	}
}

// A put that was refused finds no limit, the one that the program names, or another.
func TestLimitIsPutIfItIsMissing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		two := permits.New(p.Host, at, 2)
		p.KV.Refuse(func([]clientv3.Op) error { return rpctypes.ErrPermissionDenied })
		if err := two.Ensure(t.Context(), nil); err != rpctypes.ErrPermissionDenied {
			t.Errorf("it cannot be put: %v", err)
		}
		p.KV.Refuse(nil)
		if err := two.Ensure(t.Context(), nil); err != nil {
			t.Errorf("it is missing: %v", err)
		}
		stands := srv.Keys(at.LimitKey())[0]
		if err := two.Ensure(t.Context(), stands); err != nil || string(stands.Value) != "2" {
			t.Errorf("%q stands: %v", stands.Value, err)
		}
		for name, kv := range map[string]*mvccpb.KeyValue{"it was read": stands, "it was put meanwhile": nil} {
			other := (*holdfast.LimitError)(nil)
			if err := permits.New(p.Host, at, 3).Ensure(t.Context(), kv); !errors.As(err, &other) || other.Limit != 2 {
				t.Errorf("another, %s: %v", name, err)
			}
		}
	})
}
