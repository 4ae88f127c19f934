package raftlog

import (
	"maps"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A member has come in the place of another one: its log begins at index 20. One that is behind has an entry that no
// other has, so it was not committed.
func TestRevocationBeforeASnapshotIsInTheLogOfAnotherMember(t *testing.T) {
	t.Parallel()
	logOf := func(revokes map[revocation]clientv3.LeaseID, term, first, last uint64) memberLog {
		return memberLog{term: term, first: first, last: last, revokes: revokes}
	}
	of := func(index, term uint64) revocation { return revocation{proposer: 1, term: term, index: index} }
	late := logOf(map[revocation]clientv3.LeaseID{of(25, 3): 25}, 3, 20, 30)
	whole := logOf(map[revocation]clientv3.LeaseID{of(10, 2): 10, of(25, 3): 25}, 3, 1, 30)
	behind := logOf(map[revocation]clientv3.LeaseID{of(10, 2): 10, of(22, 2): 22}, 2, 1, 22)
	for name, logs := range map[string][]memberLog{
		"the new member first": {late, whole, behind}, "the new member last": {whole, behind, late},
		"only one that is behind has the beginning": {late, behind}, "none has an entry": {{}, late, behind},
	} {
		l := &Log{revokes: make(map[clientv3.LeaseID]revocation)}
		l.addRevokes(logs)
		if want := (map[clientv3.LeaseID]revocation{10: of(10, 2), 25: of(25, 3)}); !maps.Equal(l.revokes, want) {
			t.Errorf("%s: %+v, want %+v", name, l.revokes, want)
		}
	}
}
