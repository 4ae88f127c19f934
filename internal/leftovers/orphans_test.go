package leftovers

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/testkit/fakedial"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

const listing = "LeaseTimeToLive" // the request that lists the keys of a lease

// A program may make a name for each request. That of a foreign prefix has to be remembered: its keys do not tell it.
func TestScannerRemembersForeignPrefixesAlone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		_, _, s := New(p.Host, nil)
		foreign := layout.At("holdfast", holdfast.KindLock, "theirs/x")
		for _, at := range []layout.Queue{layout.Named(p.Host.Namespace(), holdfast.KindLock, "x"), foreign} {
			s.Used(at)
		}
		if len(s.foreign) != 1 || s.foreign[foreign.Entries] != foreign {
			t.Errorf("remembered: %v", s.foreign)
		}
	})
}

// Every other key on the lease is the user's, also one that is named as the last part of an entry's key is.
func TestEntryIsBelowANameOrAPrefixThatWasUsedAndNamesItsLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		_, _, s := New(p.Host, nil)
		lease := p.Host.Lease()
		named := layout.Named(p.Host.Namespace(), holdfast.KindLock, "x")
		used := layout.At("holdfast", holdfast.KindLock, "theirs/x")
		unused := layout.At("holdfast", holdfast.KindLock, "theirs/y")
		s.Used(used)
		id := layout.NewID(lease.ID())
		for key, want := range map[string]layout.Queue{
			named.Entries + id: named, named.ReaderKey(id): named, used.Entries + id: used,
			unused.Entries + id: {}, id: {}, "/" + id: {}, named.Entries + layout.NewID(lease.ID()+1): {},
		} {
			if at, found := s.queueOf(key, lease); found != (want != layout.Queue{}) || found && at != want {
				t.Errorf("%s is an entry: %v, of %v", key, found, at)
			}
		}
	})
}

// An entry that is released, or moved to another lease by MinHold, while the first list is on its way is no orphan. Its
// key may have another entry by the time at which it is removed.
func TestOnlyWhatTwoListsShowIsAnOrphan(t *testing.T) {
	for name, c := range map[string]struct {
		between func(t *testing.T, p *kit.Process, srv *etcdfake.Server, key string)
		orphan  bool
	}{
		"it stands": {func(*testing.T, *kit.Process, *etcdfake.Server, string) {}, true},
		"it was released": {func(t *testing.T, _ *kit.Process, srv *etcdfake.Server, key string) {
			srv.Delete(key)
		}, false},
		"it was moved to another lease": {func(t *testing.T, _ *kit.Process, srv *etcdfake.Server, key string) {
			other := kit.Join(t, srv, "other/")
			if _, err := srv.Client(t).Put(t.Context(), key, "", clientv3.WithLease(other.Lease)); err != nil {
				t.Fatal(err)
			}
		}, false},
		"the second list is lost": {func(_ *testing.T, p *kit.Process, _ *etcdfake.Server, _ string) {
			p.PlanAll(listing, etcdfake.Fate{LoseRequest: true})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var log bytes.Buffer
				p := kit.Start(t, srv, logTo(&log))
				var made []*suspect
				keys, _, s := New(p.Host, func(_ layout.Queue, key string, l *lease.Lease) *Suspect {
					made = append(made, newSuspect(l, key))
					made[0].Log = p.Host.Logger()
					return &made[0].Suspect
				})
				at := layout.Named(p.Host.Namespace(), holdfast.KindLock, "x")
				key := at.Entries + layout.NewID(p.Host.Lease().ID())
				if _, err := p.Link.Client().Put(t.Context(), key, "", clientv3.WithLease(p.Host.Lease().ID())); err != nil {
					t.Fatal(err)
				}
				p.Plan(nil)
				orphan := srv.Keys(key)[0]
				scanned := make(chan struct{})
				go func() { // received below
					defer close(scanned)
					s.scan(t.Context())
				}()
				time.Sleep(ScanAgainAfter / 2)
				synctest.Wait()
				if len(made) != 1 || keys.at(key) != &made[0].Suspect {
					t.Fatalf("after the first list the key is in use by %v", keys.at(key))
				}
				c.between(t, p, srv, key)
				<-scanned
				time.Sleep(kit.Prompt)
				synctest.Wait()
				stands := slices.ContainsFunc(srv.Keys(key), func(kv *mvccpb.KeyValue) bool {
					return kv.CreateRevision == orphan.CreateRevision
				})
				if stands == (c.orphan || name == "it was released") || keys.InUse() != 0 {
					t.Errorf("it stands: %v; %d keys are in use", stands, keys.InUse())
				}
				if strings.Contains(log.String(), "an orphaned entry") != c.orphan {
					t.Errorf("logged:\n%s", &log)
				}
				if n := p.Counts()["read"]; (n == 1) != c.orphan {
					t.Errorf("%d reads", n)
				}
			})
		})
	}
}

func TestListOfALeaseEndsWithTheLease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		_, _, s := New(p.Host, nil)
		p.PlanAll(listing, etcdfake.Fate{LoseReply: true, Silent: true})
		lease, began := p.Host.Lease(), time.Now()
		time.AfterFunc(kit.Prompt, func() { lease.Lose(holdfast.CauseRevoked, nil) })
		s.list(t.Context(), lease)
		if took := time.Since(began); took != kit.Prompt {
			t.Errorf("it ended after %v, the lease after %v", took, kit.Prompt)
		}
	})
}

func TestLogSaysThatTheKeysCouldNotBeListedForWantOfAConnection(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		link := srv.Link()
		cli := fakedial.Direct(link, srv.Members())
		t.Cleanup(func() { _ = cli.Close() }) // its error only says that it was closed
		cli.ActiveConnection().Connect()
		p := kit.StartOn(t, link, cli, logTo(&log))
		_, _, s := New(p.Host, nil)
		p.PlanAll(listing, etcdfake.Fate{LoseReply: true, Silent: true})
		s.list(t.Context(), p.Host.Lease())
		if !strings.Contains(log.String(), "no connection to etcd") {
			t.Errorf("logged:\n%s", &log)
		}
	})
}
