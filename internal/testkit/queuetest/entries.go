package queuetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
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

// NothingStands fails the test if an entry of any lock, semaphore or election stands, or the claim of one.
func NothingStands(t *testing.T, srv *etcdfake.Server) {
	t.Helper()
	for _, kv := range srv.Keys("holdfast/") {
		key := string(kv.Key)
		if strings.Contains(key, "/@/") || strings.Contains(key, "/@turn/") || isClaim(key) {
			t.Errorf("left behind: %s", key)
		}
	}
}

// AllStanding returns the entries of all locks.
func AllStanding(srv *etcdfake.Server) (entries []*mvccpb.KeyValue) {
	for _, kv := range srv.Keys("holdfast/lock/") {
		if !isClaim(string(kv.Key)) {
			entries = append(entries, kv)
		}
	}
	return entries
}

func isClaim(key string) bool {
	return strings.Contains(key, "/@claim/") || strings.HasPrefix(key, "holdfast/claim/")
}

// Claims is the prefix of the claims of a lock.
func Claims(lock string) string { return layout.Named("holdfast", holdfast.KindLock, lock).Claims }

// ClaimOf is the key of the claim of an entry below a name.
func ClaimOf(entry string) string {
	at, _ := layout.Of("holdfast", entry)
	return at.ClaimKey(entry)
}

// PutsEver returns how many entries were ever put below a prefix.
func PutsEver(srv *etcdfake.Server, prefix string) (n int) {
	for _, c := range srv.History(prefix) {
		if !c.Deleted && c.Kv.CreateRevision == c.Kv.ModRevision && !isClaim(string(c.Kv.Key)) {
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
	Lease clientv3.LeaseID // of the session key and of the entry
	Key   string
	Claim string // the key of the claim, on a lease of its own; empty: there is none
}

// Join puts the entry of a peer into a queue, its claim, and a session key, as ours have.
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
	cli := srv.Client(t)
	p := &Peer{srv: srv, Lease: grant(t, cli)}
	p.Key = fmt.Sprintf("%s%x-AAAAAAAAAAAAAAAA", prefix, int64(p.Lease))
	puts := []clientv3.Op{clientv3.OpPut(p.Key, "", clientv3.WithLease(p.Lease))}
	if at, below := layout.Of("holdfast", p.Key); below {
		p.Claim = at.ClaimKey(p.Key)
		says := layout.Claim{LockDelay: LockDelay, ToldWithin: ToldWithin}.Encode()
		puts = append(puts, clientv3.OpPut(p.Claim, says, clientv3.WithLease(grant(t, cli))))
	}
	session := fmt.Sprintf("holdfast/session/%x", int64(p.Lease))
	if _, err := cli.Put(t.Context(), session, "", clientv3.WithLease(p.Lease)); err != nil {
		t.Fatal(err)
	}
	if _, err := cli.Txn(t.Context()).Then(puts...).Commit(); err != nil {
		t.Fatal(err)
	}
	return p
}

// JoinAs puts an entry without a claim and without a session key, with an ending of its key that the test chooses. Its
// value is not of our form.
func JoinAs(t *testing.T, srv *etcdfake.Server, prefix string, ending func(clientv3.LeaseID) string) *Peer {
	t.Helper()
	cli := srv.Client(t)
	id := grant(t, cli)
	p := &Peer{srv: srv, Lease: id, Key: prefix + ending(id)}
	if _, err := cli.Put(t.Context(), p.Key, "theirs", clientv3.WithLease(p.Lease)); err != nil {
		t.Fatal(err)
	}
	return p
}

func grant(t *testing.T, cli *clientv3.Client) clientv3.LeaseID {
	t.Helper()
	resp, err := cli.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	return resp.ID
}

// Release deletes the entry and its claim.
func (p *Peer) Release() {
	if p.Claim != "" {
		p.srv.Delete(p.Claim)
	}
	p.srv.Delete(p.Key)
}

// Vanish deletes the entry by hand. Its claim and its session key stand.
func (p *Peer) Vanish() { p.srv.Delete(p.Key) }

// Revoke ends the lease of the peer, with its entry and its session key. Its claim stands.
func (p *Peer) Revoke() { p.srv.Revoke(p.Lease) }
