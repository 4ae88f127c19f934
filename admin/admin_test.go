package admin_test

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
)

func TestSessionsListsThoseThatLive(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		got := make(map[string]clientv3.LeaseID)
		for s, err := range adm.Sessions(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got[s.Owner] = s.Lease
		}
		if len(got) != 2 || got["a"] != a.Lease() || got["b"] != b.Lease() {
			t.Errorf("%v", got)
		}
	})
}

func TestBadInputIsATypedErrorBeforeAnythingIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		link := srv.Link()
		good := admin.New(link.Client(), admin.Options{})
		var argument *holdfast.ArgumentError
		var name *holdfast.NameError
		ctx := t.Context()
		var none context.Context
		for what, call := range map[string]func() error{
			"no client": func() error {
				_, err := admin.New(nil, admin.Options{}).Show(ctx, holdfast.KindLock, "x")
				return err
			},
			"zero value":   func() error { _, err := new(admin.Client).Show(ctx, holdfast.KindLock, "x"); return err },
			"nil":          func() error { _, err := (*admin.Client)(nil).Show(ctx, holdfast.KindLock, "x"); return err },
			"no context":   func() error { _, err := good.Show(none, holdfast.KindLock, "x"); return err },
			"no kind":      func() error { _, err := good.Show(ctx, "", "x"); return err },
			"empty name":   func() error { _, err := good.Show(ctx, holdfast.KindLock, ""); return err },
			"bad name":     func() error { return first(good.Events(ctx, holdfast.KindLock, "a//b")) },
			"empty prefix": func() error { return first(good.Events(ctx, admin.LockAt, "")) },
			"list's kind":  func() error { return first(good.List(ctx, "x", "")) },
			"bad namespace": func() error {
				return first(admin.New(link.Client(), admin.Options{Namespace: "/x/"}).Sessions(ctx))
			},
			"bad policy": func() error {
				return first(admin.New(link.Client(), admin.Options{Retry: backoff.Policy{Max: -1}}).Sessions(ctx))
			},
		} {
			if err := call(); !errors.As(err, &argument) && !errors.As(err, &name) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := link.Count(); len(n) != 0 {
			t.Errorf("requests: %v", n)
		}
	})
}
