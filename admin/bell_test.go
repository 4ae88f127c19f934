package admin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// noBell refuses each Txn that puts a session key, as etcd does for a role that may not.
type noBell struct{ clientv3.KV }

func (kv noBell) Txn(ctx context.Context) clientv3.Txn { return &noBellTxn{Txn: kv.KV.Txn(ctx)} }

type noBellTxn struct {
	clientv3.Txn
	rings bool
}

func (txn *noBellTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	txn.Txn = txn.Txn.If(cmps...)
	return txn
}

func (txn *noBellTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		txn.rings = txn.rings || op.IsTxn()
	}
	txn.Txn = txn.Txn.Then(ops...)
	return txn
}

func (txn *noBellTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	txn.Txn = txn.Txn.Else(ops...)
	return txn
}

func (txn *noBellTxn) Commit() (*clientv3.TxnResponse, error) {
	if txn.rings {
		return nil, rpctypes.ErrPermissionDenied
	}
	return txn.Txn.Commit()
}

// A session that watches several members asks every five seconds. A Kick and a Remove ring for it, if they may.
func TestRequestIsToldAtOnceIfItMayRingAndWithinSixSecondsIfNot(t *testing.T) {
	for _, mayRing := range []bool{true, false} {
		for name, request := range map[string]func(ctx context.Context, ops *administrator, lk *locker.Lock) error{
			"kick": func(ctx context.Context, ops *administrator, lk *locker.Lock) error {
				return ops.Kick(ctx, holdfast.KindLock, "job", lk.Token(), "deploy")
			},
			"remove": func(ctx context.Context, ops *administrator, lk *locker.Lock) error {
				return ops.Remove(ctx, holdfast.KindLock, "job", lk.Token(), "wedged")
			},
		} {
			bubble.Test(t, func(t *testing.T) {
				srv := etcdfake.New(etcdfake.Options{Members: 3})
				t.Cleanup(srv.Close)
				p := kit.StartQuiet(t, srv)
				longest := time.Duration(0)
				for i := range 10 {
					lk := mustLock(t, p.Sess, "job")
					time.Sleep(2*time.Second + time.Duration(i)*437*time.Millisecond)
					ops := newAdministrator(srv, "ops")
					if cli := ops.link.Client(); !mayRing {
						cli.KV = noBell{cli.KV}
						ops.Client = admin.New(cli, admin.Options{Auditor: audit.Func(func(context.Context, audit.Record) {})})
					}
					key, gate, begin := srv.Keys(p.SessionKey())[0], p.GateMoves(srv), time.Now()
					var told time.Time
					waiting := make(chan struct{})
					go func() {
						<-lk.Done()
						told = time.Now()
						close(waiting)
					}()
					if err := request(t.Context(), ops, lk); err != nil {
						t.Fatal(err)
					}
					<-waiting
					if lost := new(holdfast.LostError); !errors.As(lk.Check(), &lost) || !errors.As(lost, new(*holdfast.KickError)) {
						t.Errorf("%s: %v", name, lk.Check())
					}
					longest = max(longest, told.Sub(begin))
					after := srv.Keys(p.SessionKey())[0]
					if string(after.Value) != string(key.Value) || after.Lease != key.Lease ||
						p.GateMoves(srv)-gate != map[bool]int{true: 1}[mayRing] {
						t.Errorf("%s, may ring %v: the session key was %v, and is %v", name, mayRing, key, after)
					}
					_ = lk.Unlock(t.Context())
				}
				if mayRing && longest > 100*time.Millisecond || !mayRing && (longest < 2*time.Second || longest > 6*time.Second) {
					t.Errorf("%s, may ring %v: told after %v at the latest", name, mayRing, longest)
				}
			})
		}
	}
}

// The session key is gone: the request stands all the same, and puts none.
func TestRequestToASessionThatIsGonePutsNoSessionKey(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		key := layout.SessionKey("holdfast", j.a.Lease())
		j.link.BlackHole()
		j.srv.Delete(key)
		j.mustKick(t)
		if n := len(j.srv.Keys(key)); n != 0 {
			t.Errorf("%d session keys", n)
		}
		j.link.Heal()
		ends(t, j.lk, holdfast.CauseKicked)
	})
}
