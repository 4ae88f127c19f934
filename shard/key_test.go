package shard_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/shard"
)

// From the first Run to a resize and beyond: a key is routed by the number that stands in etcd, or not at all.
func TestKeyIsRoutedByTheNumberInEtcd(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		r := shard.NewReader(srv.Client(t), "orders")
		o, err := r.Observer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		routed := func(what string, f *fleet, want error) {
			t.Helper()
			synctest.Wait()
			for i := range 20 {
				key := fmt.Sprint("tenant-", i)
				asked, err := r.OwnerOf(t.Context(), key)
				observed, observedErr := o.OwnerOf(key)
				if !errors.Is(err, want) || !errors.Is(observedErr, want) {
					t.Fatalf("%s: asked %v, observed %v, want %v", what, err, observedErr, want)
				}
				owner := ""
				if want == nil {
					owner = f.owners()[shard.Of(key, f.n)]
				}
				if asked.Member != owner || observed.Member != owner {
					t.Errorf("%s: the owner of %s is %q, asked %+v, observed %+v", what, key, owner, asked, observed)
				}
			}
		}
		routed("before the first Run", nil, shard.ErrCountUnknown)
		f := newFleet(t, srv, 4)
		a := f.start("a", 0)
		time.Sleep(settle / 2)
		routed("before the members have settled", f, nil)
		b := f.start("b", 0)
		time.Sleep(settled)
		routed("two members", f, nil)
		a.stop()
		b.stop()
		routed("all have stopped", f, nil)
		if _, err := admin.New(srv.Client(t), admin.Options{}).ResizeShards(t.Context(), "orders", 8); err != nil {
			t.Fatal(err)
		}
		routed("resized", nil, shard.ErrResized)
		f = newFleet(t, srv, 8)
		f.start("a", 0)
		time.Sleep(settle / 2)
		routed("before one of the new number has settled", nil, shard.ErrResized)
		f.start("b", 0)
		time.Sleep(settled)
		routed("with the new number", f, nil)
		srv.Put(count, "many")
		routed("with no number", nil, shard.ErrCountUnknown)
		if n := testing.AllocsPerRun(100, func() { _ = o.Current() }); n > 0 {
			t.Errorf("Current allocates %v times", n)
		}
	})
}

func TestKeyOfABadReaderIsRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var bad *holdfast.NameError
		if _, err := shard.NewReader(srv.Client(t), "a//b").OwnerOf(t.Context(), "x"); !errors.As(err, &bad) {
			t.Errorf("%v", err)
		}
	})
}
