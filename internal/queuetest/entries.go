package queuetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
)

// Entries is the prefix of the entries of a lock.
func Entries(lock string) string { return "holdfast/lock/" + lock + "/@/" }

// Permits is the prefix of the entries of a semaphore.
func Permits(name string) string { return "holdfast/sem/" + name + "/@/" }

// Standing returns the entries of a lock, in order of key.
func Standing(srv *etcdfake.Server, lock string) []*mvccpb.KeyValue { return srv.Keys(Entries(lock)) }

// Turns is the prefix of the turns of a semaphore.
func Turns(name string) string { return "holdfast/sem/" + name + "/@turn/" }

// Queued waits until n entries stand below a prefix, of a semaphore n permits and turns, and until the client that has
// put the last of them has its reply and its watch.
func Queued(t *testing.T, srv *etcdfake.Server, prefix string, n int) {
	t.Helper()
	for range 1000 {
		stand := len(srv.Keys(prefix))
		if name, sem := strings.CutSuffix(prefix, "/@/"); sem {
			stand += len(srv.Keys(name + "/@turn/"))
		}
		if stand == n {
			time.Sleep(20 * OneWay)
			return
		}
		time.Sleep(OneWay)
	}
	t.Fatalf("entries: %v, want %d", srv.Keys(prefix), n)
}

// NothingStands fails the test if an entry of any lock, semaphore or election stands.
func NothingStands(t *testing.T, srv *etcdfake.Server) {
	t.Helper()
	for _, kv := range srv.Keys("holdfast/") {
		if key := string(kv.Key); strings.Contains(key, "/@/") || strings.Contains(key, "/@turn/") {
			t.Errorf("left behind: %s", kv.Key)
		}
	}
}

// PutsEver returns how many entries were ever put below a prefix.
func PutsEver(srv *etcdfake.Server, prefix string) (n int) {
	for _, c := range srv.History(prefix) {
		if !c.Deleted && c.Kv.CreateRevision == c.Kv.ModRevision {
			n++
		}
	}
	return n
}

// DeletedAt returns when the latest entry at a key was deleted.
func DeletedAt(t *testing.T, srv *etcdfake.Server, key string) time.Time {
	t.Helper()
	history := srv.History(key)
	last := history[len(history)-1]
	if !last.Deleted {
		t.Fatalf("%s stands", key)
	}
	return last.At
}

// KeysOf returns the keys of entries.
func KeysOf(kvs []*mvccpb.KeyValue) (keys []string) {
	for _, kv := range kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// Peer is another client's entry, put by hand.
type Peer struct {
	srv   *etcdfake.Server
	Lease clientv3.LeaseID
	Key   string
}

// Join puts the entry of a peer into a queue, and a session key as ours have.
func Join(t *testing.T, srv *etcdfake.Server, prefix string) *Peer {
	t.Helper()
	return join(t, srv, prefix)
}

// JoinReader is Join for a reader's entry.
func JoinReader(t *testing.T, srv *etcdfake.Server, prefix string) *Peer {
	t.Helper()
	return join(t, srv, prefix+"!s")
}

// JoinPermit is Join for a permit of a semaphore with that weight.
func JoinPermit(t *testing.T, srv *etcdfake.Server, prefix string, weight int) *Peer {
	t.Helper()
	return join(t, srv, fmt.Sprintf("%s%d-", prefix, weight))
}

func join(t *testing.T, srv *etcdfake.Server, prefix string) *Peer {
	t.Helper()
	p := JoinAs(t, srv, prefix, func(id clientv3.LeaseID) string { return fmt.Sprintf("%x-AAAAAAAAAAAAAAAA", int64(id)) })
	key := fmt.Sprintf("holdfast/session/%x", int64(p.Lease))
	if _, err := srv.Client(t).Put(t.Context(), key, "", clientv3.WithLease(p.Lease)); err != nil {
		t.Fatal(err)
	}
	return p
}

// JoinAs puts an entry without a session key, with an ending of its key that the test
// chooses.
func JoinAs(t *testing.T, srv *etcdfake.Server, prefix string, ending func(clientv3.LeaseID) string) *Peer {
	t.Helper()
	grant, err := srv.Client(t).Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	p := &Peer{srv: srv, Lease: grant.ID, Key: prefix + ending(grant.ID)}
	if _, err := srv.Client(t).Put(t.Context(), p.Key, "", clientv3.WithLease(p.Lease)); err != nil {
		t.Fatal(err)
	}
	return p
}

// Release deletes the entry.
func (p *Peer) Release() { p.srv.Delete(p.Key) }

// Revoke ends the lease of the peer, with its entry and its session key.
func (p *Peer) Revoke() { p.srv.Revoke(p.Lease) }
