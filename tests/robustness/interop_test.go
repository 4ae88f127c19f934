package robustness

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// etcdctl starts "etcdctl lock" and returns once the queue has that many entries.
// holds receives the key that etcdctl prints when it acquires the lock, and "" if it
// exits before. end makes it release the lock.
func etcdctl(t *testing.T, srv *etcdtest.Server, prefix string, queued int) (
	entry *mvccpb.KeyValue, holds <-chan string, end func(),
) {
	t.Helper()
	path, err := exec.LookPath("etcdctl")
	if err != nil {
		t.Skip("etcdctl is missing: apt-get install etcd-client")
	}
	cmd := exec.Command(path, "--endpoints", strings.Join(srv.Endpoints(), ","), "lock", prefix)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed := make(chan string, 1)
	go func() { // ends with the process
		buf := make([]byte, 1024)
		n, _ := out.Read(buf)
		printed <- strings.TrimSpace(string(buf[:n]))
	}()
	var once sync.Once
	end = func() {
		once.Do(func() {
			_ = cmd.Process.Signal(os.Interrupt)
			_ = cmd.Wait()
		})
	}
	t.Cleanup(end)
	kvs := srv.WaitForKeys(t, prefix+"/", queued)
	return kvs[len(kvs)-1], printed, end
}

func TestMutexAndEtcdctlLockExcludeEachOther(t *testing.T) {
	t.Parallel()
	const prefix = "/legacy/lock"
	srv := etcdtest.Start(t)
	mu := locker.NewMutexAt(open(t, srv.Client(t), session.Options{}), prefix)
	lk, err := mu.Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	entry, printed, end := etcdctl(t, srv, prefix, 2)
	next := make(chan *locker.Lock, 1)
	go func() { // received below
		lk, err := locker.NewMutexAt(open(t, srv.Client(t), session.Options{}), prefix).Lock(deadline(t))
		if err != nil {
			t.Error(err)
		}
		next <- lk
	}()
	srv.WaitForKeys(t, prefix+"/", 3)
	select {
	case key := <-printed:
		t.Errorf("etcdctl printed %q while the first Mutex holds", key)
	case <-next:
		t.Error("the second Mutex holds while the first does")
	default:
	}
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if key := <-printed; key != string(entry.Key) {
		t.Errorf("etcdctl printed %q, its entry is %q", key, entry.Key)
	}
	if _, err := mu.TryLock(deadline(t)); err == nil {
		t.Error("TryLock succeeded while etcdctl holds")
	}
	end()
	if lk := <-next; lk == nil || lk.Check() != nil || int64(lk.Token()) <= entry.CreateRevision {
		t.Errorf("the second Mutex: %+v", lk)
	}
}

// The lease of a waiting etcdctl, of a Mutex that holds, and of an etcdctl that holds
// is revoked in turn. Each time the next in the queue acquires.
func TestRevokedLeaseFreesTheLockForMutexAndEtcdctl(t *testing.T) {
	t.Parallel()
	const prefix = "/legacy/lock"
	srv := etcdtest.Start(t)
	holder := open(t, srv.Client(t), session.Options{})
	if _, err := locker.NewMutexAt(holder, prefix).Lock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	first, printed, _ := etcdctl(t, srv, prefix, 2)
	third, secondPrinted, _ := etcdctl(t, srv, prefix, 3)
	srv.Revoke(t, clientv3.LeaseID(first.Lease)) // of the first etcdctl, which waits
	srv.WaitForKeys(t, prefix+"/", 2)
	srv.Revoke(t, holder.Lease()) // of the holder
	if key := <-secondPrinted; key != string(third.Key) {
		t.Errorf("the second etcdctl printed %q, want %q", key, third.Key)
	}
	select {
	case key := <-printed:
		if key != "" {
			t.Errorf("the etcdctl whose lease was revoked printed %q", key)
		}
	default:
	}
	srv.Revoke(t, clientv3.LeaseID(third.Lease)) // of the second etcdctl, which holds
	lk, err := locker.NewMutexAt(open(t, srv.Client(t), session.Options{}), prefix).Lock(deadline(t))
	if err != nil || lk.Check() != nil {
		t.Errorf("Lock after all leases were revoked: %v", err)
	}
}
