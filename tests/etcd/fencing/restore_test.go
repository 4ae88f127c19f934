package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// backup saves a snapshot of srv like "etcdctl snapshot save".
func backup(t *testing.T, srv *etcdtest.Server) (path string) {
	t.Helper()
	r, err := srv.Client(t).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path = filepath.Join(t.TempDir(), "snapshot.db")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, r); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// restore starts an etcd from a snapshot like "etcdutl snapshot restore", with
// --bump-revision and --mark-compacted if bump is not zero.
func restore(t *testing.T, path string, bump uint64) *etcdtest.Server {
	t.Helper()
	dir := t.TempDir()
	const name, peer = "m0", "http://127.0.0.1:2380" // of a single member, so it is never connected to
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: path, Name: name, OutputDataDir: filepath.Join(dir, name),
		PeerURLs: []string{peer}, InitialCluster: name + "=" + peer, InitialClusterToken: "restored",
		RevisionBump: bump, MarkCompacted: bump > 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	return etcdtest.Start(t, etcdtest.Options{Dir: dir})
}

// held acquires the lock with its own session.
func held(t *testing.T, cli *clientv3.Client) *locker.Lock {
	t.Helper()
	sess, err := session.New(t.Context(), cli, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sess.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	lk, err := locker.NewMutex(sess, "job").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

func unlock(t *testing.T, lk *locker.Lock) {
	t.Helper()
	if err := lk.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func present(t *testing.T, h fencing.Holder) fencing.Claim {
	t.Helper()
	c, err := fencing.Present(h)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// history returns a snapshot, and a guard outside etcd that has seen the claim of a
// later holder, which the snapshot does not contain.
func history(t *testing.T) (path string, guard *memfence.Store, last fencing.Claim) {
	t.Helper()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	guard = memfence.New(memfence.Options{})
	for generation := range 2 {
		lk := held(t, cli)
		last = present(t, lk)
		if _, err := do(t, guard, "r", last); err != nil {
			t.Fatal(err)
		}
		unlock(t, lk)
		if generation == 0 {
			path = backup(t, srv)
		}
		for i := range 50 { // so that the restored etcd does not catch up during the test
			if _, err := cli.Put(t.Context(), "other", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return path, guard, last
}

func TestAfterARestoreGuardsRefuseUntilTheEpochIsBumped(t *testing.T) {
	path, guard, last := history(t)
	cli := restore(t, path, 0).Client(t)

	rewound := held(t, cli)
	c := present(t, rewound)
	if c.Token >= last.Token {
		t.Fatalf("revisions were not set back: token %v after %v", c.Token, last.Token)
	}
	ran, err := do(t, guard, "r", c)
	var below *fencing.MarkError
	if ran || !errors.Is(err, fencing.ErrStale) || !errors.As(err, &below) || below.Mark != last.Token ||
		below.NeedsEpoch() != 1 {
		t.Fatalf("the guard admits a smaller token: ran %v, %v", ran, err)
	}
	mustSay(t, err, "restored from a backup", "epoch to 1 or more", "BumpEpoch", "acquire again")

	// The operator does what the error says.
	epoch, err := etcdfence.BumpEpoch(t.Context(), cli, "", below.NeedsEpoch(), quiet)
	if epoch != 1 || err != nil {
		t.Fatalf("%d, %v", epoch, err)
	}
	// The present holder keeps its token, and its fenced writes to etcd still succeed.
	if again := present(t, rewound); again != c {
		t.Errorf("the bump changed a holder's token from %v to %v", c, again)
	}
	if ran, _ := do(t, guard, "r", present(t, rewound)); ran {
		t.Error("the token of the old epoch is admitted after the bump")
	}
	if _, err := etcdfence.NewWriter(rewound).Put(t.Context(), "k", "v"); err != nil {
		t.Errorf("the holder's writes to etcd: %v", err)
	}
	unlock(t, rewound)

	lk := held(t, cli)
	if c := present(t, lk); c.Token <= last.Token || c.Token.Epoch() != 1 {
		t.Errorf("token after the bump is %v (epoch %d), before the restore %v", c.Token, c.Token.Epoch(), last.Token)
	}
	if ran, err := do(t, guard, "r", present(t, lk)); !ran {
		t.Errorf("the new holder is refused: %v", err)
	}
	for _, old := range []fencing.Claim{last, c} {
		if ran, _ := do(t, guard, "r", old); ran {
			t.Errorf("%v of the old epoch is admitted after one of the new", old)
		}
	}
}

func TestRestoreThatBumpsRevisionsNeedsNoEpoch(t *testing.T) {
	path, guard, last := history(t)
	lk := held(t, restore(t, path, 1_000_000).Client(t))
	c := present(t, lk)
	if c.Token <= last.Token || c.Token.Epoch() != 0 {
		t.Errorf("token is %v, before the restore it was %v", c.Token, last.Token)
	}
	if ran, err := do(t, guard, "r", c); !ran {
		t.Errorf("the new holder is refused: %v", err)
	}
	if ran, _ := do(t, guard, "r", last); ran {
		t.Error("a holder from before the restore is admitted")
	}
}

// Without a restore, a bump changes nothing until a holder of the new epoch comes.
func TestHolderAtTheTimeOfABumpWorksUntilOneOfTheNewEpochComes(t *testing.T) {
	cli := etcdtest.Start(t).Client(t)
	guard := memfence.New(memfence.Options{})
	old := held(t, cli)
	if _, err := etcdfence.BumpEpoch(t.Context(), cli, "", 1, quiet); err != nil {
		t.Fatal(err)
	}
	oldClaim := present(t, old)
	if ran, err := do(t, guard, "r", oldClaim); !ran {
		t.Errorf("the holder is refused by the bump alone: %v", err)
	}
	unlock(t, old)
	next := held(t, cli)
	if ran, err := do(t, guard, "r", present(t, next)); !ran {
		t.Errorf("the next holder: %v", err)
	}
	if ran, _ := do(t, guard, "r", oldClaim); ran {
		t.Error("the holder of the old epoch is admitted after one of the new")
	}
}
