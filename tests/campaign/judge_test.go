//go:build linux

package main

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/tests/internal/raftlog"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// An entry that MinHold keeps is on a lease of its own. When an administrator revoked that one, the name was said to be
// free before MinHold was over, as if holdfast had let it go.
func TestCauseOfADeletionWhenALeaseIsRevokedByHand(t *testing.T) {
	const session, other = 0xa, 0xb
	key := []byte("holdfast/lock/x/@/a-ABCDEFGHIJKLMNOP")
	for _, c := range []struct {
		on, revoked clientv3.LeaseID
		withSession bool // the session key is deleted at the same revision
		want        oracle.Cause
	}{
		{on: other, revoked: other, want: oracle.ByDeletion},
		{on: other, want: oracle.ByLease},
		{on: session, revoked: session, withSession: true, want: oracle.ByRevocation},
		{on: session, withSession: true, want: oracle.ByLease},
		{on: session, want: oracle.ByRequest},
	} {
		f := &round{diary: diary{revoked: map[clientv3.LeaseID]bool{c.revoked: true}}}
		changes := []oracle.Change{{Revision: 5, Deleted: true, Kv: &mvccpb.KeyValue{Key: key},
			Prev: &mvccpb.KeyValue{Key: key, Lease: int64(c.on)}}}
		if c.withSession {
			changes = append(changes, oracle.Change{Revision: 5, Deleted: true,
				Kv: &mvccpb.KeyValue{Key: []byte(oracle.SessionKey(session))}})
		}
		f.setCauses(changes, &raftlog.Log{})
		if got := changes[0].Cause; got != c.want {
			t.Errorf("on lease %x, lease %x revoked by hand: %v, want %v", c.on, c.revoked, got, c.want)
		}
	}
}
