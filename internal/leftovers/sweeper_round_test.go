package leftovers

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// What is added while the sweeper is at work is for its next round.
func TestSweeperSweepsOnceAtATimeAndQuietly(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := kit.Start(t, srv, logTo(&log))
		keys, s := New(p.Host)
		const read = 20 * kit.OneWay
		p.PlanAll("read", etcdfake.Fate{Request: read})
		for _, key := range []string{"x", "y"} {
			e := newSuspect(p.Host.Lease(), key)
			keys.Register(key, e.Lease, e)
			s.Add(&e.Suspect)
			time.Sleep(read / 4)
		}
		if n := p.Counts()["read"]; n != 1 {
			t.Errorf("%d reads side by side", n)
		}
		time.Sleep(10 * read)
		if n := p.Counts()["read"]; n != 2 || keys.InUse() != 0 {
			t.Errorf("%d reads, and %d keys are in use", n, keys.InUse())
		}
		if strings.Contains(log.String(), "refuses") {
			t.Errorf("nothing was refused:\n%s", &log)
		}
	})
}

// What the sweeper has found goes, and another client puts something at the key, before the removal arrives.
func TestSweeperRemovesOnlyWhatItHasFound(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		_, s := New(p.Host)
		srv.Put("x", "found")
		p.PlanOne("remove", etcdfake.Fate{Request: 20 * kit.OneWay})
		done := make(chan error, 1)
		go func() { // joined below
			done <- s.removeTogether(t.Context(), []*Suspect{&newSuspect(p.Host.Lease(), "x").Suspect}, true)
		}()
		time.Sleep(10 * kit.OneWay)
		if n := p.Counts()["remove"]; n != 1 {
			t.Errorf("%d removals: this tests nothing", n)
		}
		srv.Delete("x")
		srv.Put("x", "another")
		if err := <-done; !errors.Is(err, errRemoved) {
			t.Errorf("%v, want %v", err, errRemoved)
		}
		if kvs := srv.Keys("x"); len(kvs) != 1 || string(kvs[0].Value) != "another" {
			t.Errorf("at the key: %v", kvs)
		}
	})
}

// etcd refuses the removal of several entries, and not that of each.
func TestSweeperThatRemovesEachEntryByItselfIsDone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		_, s := New(p.Host)
		var batch []*Suspect
		for _, key := range []string{"x", "y"} {
			srv.Put(key, "")
			batch = append(batch, &newSuspect(p.Host.Lease(), key).Suspect)
		}
		p.KV.Refuse(func(ops []clientv3.Op) error {
			if len(ops) > 1 && ops[0].IsDelete() {
				return rpctypes.ErrPermissionDenied
			}
			return nil
		})
		if err := s.removeStanding(t.Context(), batch, true); err != nil || len(srv.Keys("x"))+len(srv.Keys("y")) != 0 {
			t.Errorf("%v; %v, %v", err, srv.Keys("x"), srv.Keys("y"))
		}
	})
}

// The value of an entry may be large, and only that of an attached one says something: see Suspect.owns.
func TestSweeperReadsNoValues(t *testing.T) {
	for _, attached := range []bool{false, true} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			p := kit.Start(t, srv)
			_, s := New(p.Host)
			read := 0
			p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
				if txn, ok := c.Request.(*pb.TxnRequest); ok && kit.KindOf(c) == "read" {
					read++
					if keysOnly := txn.Success[0].GetRequestRange().KeysOnly; keysOnly == attached {
						t.Errorf("attached %v: keys only %v", attached, keysOnly)
					}
				}
				return f
			})
			e := newSuspect(p.Host.Lease(), "x", "claim")
			e.Attached = attached
			if err := s.removeTogether(t.Context(), []*Suspect{&e.Suspect}, true); err != nil || read != 1 {
				t.Errorf("%v after %d reads", err, read)
			}
		})
	}
}
