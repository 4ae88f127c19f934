package locker_test

import (
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

var (
	open       = testkit.Open
	deadline   = testkit.Deadline
	soon       = testkit.Within
	eventually = testkit.Eventually
)

func TestMain(m *testing.M) { testkit.Main(m) }

// mustLock acquires a lock that is free or soon will be.
func mustLock(t *testing.T, mu *locker.Mutex) *locker.Lock {
	t.Helper()
	lk, err := mu.Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// entries returns the entries of a lock, in queue order.
func entries(t *testing.T, srv *etcdtest.Server, name string) []*mvccpb.KeyValue {
	t.Helper()
	return srv.Keys(t, "holdfast/lock/"+name+"/@/")
}

// interval is the range of revisions during which an entry existed.
type interval struct {
	key      string
	from, to int64 // to is 0 while it exists
}

// intervals returns all entries that a lock ever had, from etcd's history, in the order of their creation.
func intervals(t *testing.T, srv *etcdtest.Server, name string) []interval {
	t.Helper()
	var all []interval
	for _, ev := range srv.History(t, "holdfast/lock/"+name+"/@/") {
		key := string(ev.Kv.Key)
		if ev.IsCreate() {
			all = append(all, interval{key: key, from: ev.Kv.ModRevision})
			continue
		}
		i := slices.IndexFunc(all, func(iv interval) bool { return iv.key == key && iv.to == 0 })
		if i >= 0 && ev.Type == mvccpb.Event_DELETE {
			all[i].to = ev.Kv.ModRevision
		}
	}
	return all
}

// settled waits until a new session has sent its startup requests: the version query, and the read that follows the
// watch of its session key. Otherwise they would be counted in the test.
func settled(t *testing.T, link *etcdtest.Link) {
	t.Helper()
	for _, rpc := range []string{"Status", "Range"} {
		if err := link.Wait(deadline(t), rpc, 1); err != nil {
			t.Fatal(err)
		}
	}
}
