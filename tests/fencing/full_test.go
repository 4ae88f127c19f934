package fencing_test

import (
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
)

// Resources that clients choose, and processes that live for one of them.
func TestMarksInEtcdAreBounded(t *testing.T) {
	const most = 20
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	store := func() *fencing.EtcdMarks {
		m, err := fencing.NewEtcdMarks(cli, &fencing.EtcdMarksOptions{MaxMarks: most})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for name, write := range map[string]func(m *fencing.EtcdMarks, resource string, token int64) error{
		"commit": func(m *fencing.EtcdMarks, resource string, token int64) error {
			_, err := m.Commit(t.Context(), resource, claim(token), clientv3.OpPut("k", "v"))
			return err
		},
		"admit": func(m *fencing.EtcdMarks, resource string, token int64) error {
			return m.Admit(t.Context(), resource, claim(token))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := cli.Delete(t.Context(), "holdfast/mark/", clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
			long := store()
			for i := range 3 * most {
				m := long
				if i%2 == 0 {
					m = store()
				}
				err := write(m, fmt.Sprint("job/", i), 5)
				if (err == nil) != (i < most) || err != nil && (!errors.Is(err, fencing.ErrFull) || fence.VerdictOf(err) != fence.NothingDone) {
					t.Fatalf("resource %d of %d: %v", i, most, err)
				}
				if err != nil {
					mustSay(t, err, fmt.Sprintf("%q", fmt.Sprint("job/", i)), "20 resources", "MaxMarks", "Reset")
				}
			}
			if n := len(srv.Keys(t, "holdfast/mark/")); n != most {
				t.Errorf("%d marks", n)
			}
			for _, m := range []*fencing.EtcdMarks{long, store()} { // those that have a mark go on, and keep it
				if err := write(m, "job/0", 7); err != nil {
					t.Errorf("a resource with a mark: %v", err)
				}
				if err := write(m, "job/0", 5); !errors.Is(err, fencing.ErrStale) {
					t.Errorf("its mark was forgotten: %v", err)
				}
			}
			if err := long.Reset(t.Context(), "job/1", &journal{}); err != nil {
				t.Fatal(err)
			}
			if err := write(store(), "another", 5); err != nil {
				t.Errorf("after a reset: %v", err)
			}
		})
	}
}

// The count is not made for each new resource.
func TestNewResourcesAreCountedNowAndThen(t *testing.T) {
	m := newMarks(t, nil)
	before := m.link.Count()
	for i := range 100 {
		if _, err := m.Commit(t.Context(), fmt.Sprint(i), claim(5), clientv3.OpPut("k", "v")); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.link.Count().Since(before); n["Range"] != 1 || n["Txn"] != 101 {
		t.Errorf("100 new resources took %v", n)
	}
	unbounded := newMarks(t, &fencing.EtcdMarksOptions{MaxMarks: -1})
	before = unbounded.link.Count()
	if err := unbounded.write(t.Context(), claim(5)); err != nil {
		t.Fatal(err)
	}
	if n := unbounded.link.Count().Since(before); n.Total() != 1 {
		t.Errorf("without a bound: %v", n)
	}
}

func TestEpochThatMayNotBeReadIsNamed(t *testing.T) {
	cli := etcdtest.Start(t).Client(t)
	ctx := t.Context()
	steps := []func() error{
		func() error { _, err := cli.RoleAdd(ctx, "root"); return err },
		func() error { _, err := cli.UserAdd(ctx, "root", "pw"); return err },
		func() error { _, err := cli.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := cli.RoleAdd(ctx, "poor"); return err },
		func() error { _, err := cli.UserAdd(ctx, "poor", "pw"); return err },
		func() error { _, err := cli.UserGrantRole(ctx, "poor", "poor"); return err },
		func() error { _, err := cli.AuthEnable(ctx); return err },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	poor, err := clientv3.New(clientv3.Config{Endpoints: cli.Endpoints(), Username: "poor", Password: "pw", Logger: cli.GetLogger()})
	if err != nil {
		t.Fatal(err)
	}
	defer poor.Close()
	_, err = fencing.Epoch(ctx, poor, "ns")
	if backoff.Classify(err) != backoff.Unauthorised {
		t.Fatal(err)
	}
	mustSay(t, err, `"ns/epoch"`, "role grant-permission ROLE read ns/epoch")
	_, err = fencing.BumpEpoch(ctx, poor, "ns", 1, &journal{})
	if backoff.Classify(err) != backoff.Unauthorised {
		t.Fatal(err)
	}
	mustSay(t, err, `"ns/epoch"`, "role grant-permission ROLE readwrite ns/epoch")
}
