package queue_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// A role may have the right to a foreign prefix, and none to the claims, which stand elsewhere. All steps are taken
// without claims, by one request more for the first put alone, and the log says so once.
func TestRoleWithoutTheRightToClaimsLocksWithoutThem(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p, other := holdtest.Start(t, srv, holdtest.LogTo(&log)), holdtest.Start(t, srv)
		refuse := func(ops []clientv3.Op) error {
			if slices.ContainsFunc(ops, func(op clientv3.Op) bool {
				return strings.HasPrefix(string(op.KeyBytes()), "holdfast/claim/") || len(op.KeyBytes()) == 0
			}) {
				return rpctypes.ErrPermissionDenied
			}
			return nil
		}
		p.KV.Refuse(refuse)
		other.KV.Refuse(refuse)
		q := p.QueueAt("theirs/x")
		h := holdtest.MustAcquire(t, q)
		next := holdtest.AcquireLater(kit.Within(t, time.Minute), p.QueueAt("theirs/x"))
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), other.QueueAt("theirs/x"))
		kit.Queued(t, srv, "theirs/x/", 2)
		holdtest.MustRelease(t, h) // hands off
		r := <-waiter
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		holdtest.MustRelease(t, r.H)
		r = <-next
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		holdtest.MustRelease(t, r.H)
		for _, acquire := range []acquirer{holdtest.AcquireSet, holdtest.TryAcquireSet} {
			holds, err := acquire(kit.Within(t, time.Minute), queue.Set{q}, hold.Request{MinHold: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			holdtest.MustRelease(t, holds[0])
			time.Sleep(3 * time.Second)
		}
		if kvs := srv.Keys("theirs/x/"); len(kvs) != 0 {
			t.Errorf("left: %v", kvs)
		}
		kit.NothingStands(t, srv)
		if n := strings.Count(log.String(), "no right to the claims"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, &log)
		}
	})
}
