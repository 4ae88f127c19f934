package session

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// A watch may stand on a member that does not vote: it was created before it was known who does, or is ending.
func TestOnlyWatchesOnVotersMakeALeaseWatched(t *testing.T) {
	voters := map[uint64]bool{1: true, 2: true, 3: true}
	for name, c := range map[string]struct {
		slots []slot
		want  bool
	}{
		"two voters":                    {[]slot{{member: 1, stands: true}, {member: 2, stands: true}}, true},
		"a voter, and one that is not":  {[]slot{{member: 1, stands: true}, {member: 4, stands: true}}, false},
		"two voters, of which one ends": {[]slot{{member: 1, stands: true}, {member: 2}}, false},
	} {
		clock := MonotonicClock()
		l := lease.New(lease.Origin{ID: 1}, clock)
		w := newWatches(nil, sessionKey{env: &env{Env: lease.Env{Client: clientv3.NewCtxClient(t.Context())}}, lease: l})
		w.voters, w.endpoints, w.slots = voters, 3, c.slots
		w.publishLocked()
		if l.Watched() != c.want {
			t.Errorf("%s: watched %v", name, l.Watched())
		}
	}
}
