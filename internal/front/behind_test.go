package front

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// candidate is an entry with its claim, put by hand, on two leases as those of a session.
type candidate struct {
	srv            *etcdfake.Server
	entry, claim   string
	lease, claims  clientv3.LeaseID
	createRevision int64
}

func enter(t *testing.T, srv *etcdfake.Server, q layout.Keyspace) candidate {
	t.Helper()
	cli := srv.Client(t)
	c := candidate{srv: srv}
	for _, id := range []*clientv3.LeaseID{&c.lease, &c.claims} {
		grant, err := cli.Grant(t.Context(), 3600)
		if err != nil {
			t.Fatal(err)
		}
		*id = grant.ID
	}
	c.entry = q.Entries + fmt.Sprintf("%x-AAAAAAAAAAAAAAAA", int64(c.lease))
	c.claim = q.ClaimKey(c.entry)
	resp, err := cli.Txn(t.Context()).Then(clientv3.OpPut(c.entry, "", clientv3.WithLease(c.lease)),
		clientv3.OpPut(c.claim, "", clientv3.WithLease(c.claims))).Commit()
	if err != nil {
		t.Fatal(err)
	}
	c.createRevision = resp.Header.Revision
	return c
}

// revoke ends the lease of the entry, and leaves the claim.
func (c candidate) revoke() { c.srv.Revoke(c.lease) }

// release deletes both keys, as a release does.
func (c candidate) release(t *testing.T) {
	t.Helper()
	_, err := c.srv.Client(t).Txn(t.Context()).Then(clientv3.OpDelete(c.entry), clientv3.OpDelete(c.claim)).Commit()
	if err != nil {
		t.Fatal(err)
	}
}

// Both kinds of queues have claims, at other places.
var queues = map[string]layout.Keyspace{
	"name":   layout.Named("holdfast", holdfast.KindElection, "x"),
	"prefix": layout.At("holdfast", holdfast.KindElection, "/app/x"),
}

func readerOf(t *testing.T, cli *clientv3.Client, q layout.Keyspace) *Monitor {
	t.Helper()
	return New(cli, q, names.DefaultNamespace, backoff.Policy{}, session.MonotonicClock())
}

// The first entry waits while the claim of one that went without a release stands ahead of it.
func TestNoneHoldsBehindADeadClaim(t *testing.T) {
	for kind, q := range queues {
		t.Run(kind, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				r := readerOf(t, srv.Client(t), q)
				holds := func(what string, want candidate) {
					t.Helper()
					if f := mustRead(t, r); f.Entry == nil || string(f.Entry.Key) != want.entry || f.Token == 0 {
						t.Errorf("%s: %+v", what, f)
					}
				}
				waits := func(what string, behind candidate) {
					t.Helper()
					if f := mustRead(t, r); f.Entry != nil || f.Token != 0 || f.Behind != behind.claim {
						t.Errorf("%s: %+v", what, f)
					}
				}
				a, b, c, d := enter(t, srv, q), enter(t, srv, q), enter(t, srv, q), enter(t, srv, q)
				holds("the first", a)
				b.revoke()
				holds("behind it one that waited is lost", a)
				a.revoke()
				waits("the holder was lost", a)
				srv.Delete(a.claim)
				waits("the second claim", b)
				srv.Delete(b.claim)
				holds("both claims are cleared", c)
				c.release(t)
				holds("after a release", d)
				srv.Delete(d.claim) // with its lease, say
				holds("one without a claim", d)
				e := enter(t, srv, q)
				srv.Delete(d.entry)
				holds("behind one without a claim", e)
				e.revoke()
				if f := mustRead(t, r); f.Entry != nil {
					t.Errorf("nobody waits: %+v", f)
				}
				waits("a newcomer", func() candidate { enter(t, srv, q); return e }())
			})
		})
	}
}

// etcd's own clients know no delay: they hold as soon as they are first.
func TestEntryOfAnotherClientHoldsBehindADeadClaim(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := queues["prefix"]
		a := enter(t, srv, q)
		a.revoke()
		srv.Put(q.Entries+"694d", "etcdctl")
		if f := mustRead(t, readerOf(t, srv.Client(t), q)); f.Entry == nil || f.Value.Data != "etcdctl" {
			t.Errorf("%+v", f)
		}
	})
}

// A role may read the prefix alone. Then the first entry is told as holding, a lock delay early.
func TestFrontOfAPrefixWithoutTheRightToReadClaims(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := queues["prefix"]
		a, b := enter(t, srv, q), enter(t, srv, q)
		a.revoke()
		link := srv.Link()
		cli := link.Client()
		kv := &kit.RefusingKV{KVClient: link.KVClient()}
		cli.KV = clientv3.NewKVFromKVClient(kv, cli)
		kv.Refuse(func(ops []clientv3.Op) error {
			for _, op := range ops {
				if q.IsClaim(string(op.KeyBytes())) {
					return rpctypes.ErrPermissionDenied
				}
			}
			return nil
		})
		if f := mustRead(t, readerOf(t, cli, q)); f.Entry == nil || string(f.Entry.Key) != b.entry {
			t.Errorf("%+v", f)
		}
		kv.Refuse(func([]clientv3.Op) error { return rpctypes.ErrPermissionDenied })
		if _, err := readerOf(t, cli, q).Read(t.Context()); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("it may read nothing: %v", err)
		}
	})
}

// A follower is told at once when the last claim ahead has gone; below a prefix, by the next read.
func TestFollowTellsThatTheClaimsAheadAreCleared(t *testing.T) {
	for kind, q := range queues {
		t.Run(kind, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				within, every := kit.Prompt, time.Hour
				if q.Foreign {
					within, every = 5*time.Second+kit.Prompt, 5*time.Second
				}
				f := follow(t, readerOf(t, srv.Client(t), q), every)
				last := func() string {
					t.Helper()
					all := f.told(within)
					if len(all) == 0 {
						return "nothing"
					}
					if now := all[len(all)-1]; now.Entry != nil {
						return string(now.Entry.Key)
					}
					return "none"
				}
				expect := func(what, want string) {
					t.Helper()
					if got := last(); got != want {
						t.Errorf("%s: told %s, want %s", what, got, want)
					}
				}
				expect("the empty queue", "none")
				a, b := enter(t, srv, q), enter(t, srv, q)
				expect("the first", a.entry)
				b.revoke()
				c := enter(t, srv, q)
				a.revoke()
				expect("the holder is lost", "none")
				enter(t, srv, q)
				srv.Delete(a.claim)
				srv.Put(c.entry, "written to")
				if got := last(); got == c.entry {
					t.Error("told as holding while a claim is ahead")
				}
				srv.Delete(b.claim)
				expect("all claims are cleared", c.entry)
			})
		})
	}
}
