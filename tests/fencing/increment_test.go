package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
)

// Two holders increment a counter, the first paused between its read and its
// write. docs/fencing.md has the picture.
func TestReadComputeWrite(t *testing.T) {
	const paused, later = 5, 7
	for name, c := range map[string]struct {
		raise     bool // at acquisition
		condition bool // on what was read
		want      string
	}{
		"the trap":           {want: "5 acknowledged, 7 acknowledged, counter 1"},
		"raise first":        {raise: true, want: "5 refused, 7 acknowledged, counter 1"},
		"condition on value": {condition: true, want: "5 acknowledged, 7 not applied, counter 1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarks(t, nil)
			read := func(token int64) (n int, mod int64) {
				if c.raise {
					if err := m.Admit(t.Context(), "counter", claim(token)); err != nil {
						t.Fatal(err)
					}
				}
				resp, err := m.cli.Get(t.Context(), "counter")
				if err != nil {
					t.Fatal(err)
				}
				if len(resp.Kvs) > 0 {
					n, _ = strconv.Atoi(string(resp.Kvs[0].Value))
					mod = resp.Kvs[0].ModRevision
				}
				return n, mod
			}
			write := func(token int64, n int, mod int64) string {
				op := clientv3.OpPut("counter", strconv.Itoa(n))
				if c.condition {
					op = clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision("counter"), "=", mod)}, []clientv3.Op{op}, nil)
				}
				resp, err := m.Commit(t.Context(), "counter", claim(token), op)
				switch {
				case errors.Is(err, fencing.ErrStale):
					return fmt.Sprint(token, " refused")
				case err != nil:
					t.Fatal(err)
				case c.condition && !resp.Responses[0].GetResponseTxn().Succeeded:
					return fmt.Sprint(token, " not applied")
				}
				return fmt.Sprint(token, " acknowledged")
			}
			n5, mod5 := read(paused)
			n7, mod7 := read(later)
			first := write(paused, n5+1, mod5) // goes on too late
			second := write(later, n7+1, mod7)
			values := m.srv.Keys(t, "counter")
			if got := fmt.Sprintf("%s, %s, counter %s", first, second, values[0].Value); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// Raise the mark when the lock is acquired, and only then read what is to be
// changed: no write of an earlier holder comes after the read.
func ExampleEtcdMarks_Commit() {
	srv, err := etcdtest.New(nil) // an etcd that need not be the lock's
	if err != nil {
		panic(err)
	}
	defer srv.Close()
	cli, err := srv.NewClient()
	if err != nil {
		panic(err)
	}
	defer cli.Close()

	marks, err := fencing.NewEtcdMarks(cli, nil)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	read := func(c fencing.Claim) (n int, err error) {
		if err := marks.Admit(ctx, "counter", c); err != nil { // raises the mark
			return 0, err
		}
		resp, err := cli.Get(ctx, "counter")
		if err == nil && len(resp.Kvs) > 0 {
			n, err = strconv.Atoi(string(resp.Kvs[0].Value))
		}
		return n, err
	}
	write := func(c fencing.Claim, n int) {
		_, err := marks.Commit(ctx, "counter", c, clientv3.OpPut("counter", strconv.Itoa(n)))
		if errors.Is(err, fencing.ErrStale) {
			fmt.Println(c, "is refused")
			return
		}
		fmt.Println(c, "writes", n, err)
	}
	// As fencing.Present returns it for a lock.
	first, next := fencing.Claim{Name: "counter", Token: 5}, fencing.Claim{Name: "counter", Token: 7}
	a, _ := read(first) // paused here, and its lock lost
	b, _ := read(next)
	write(first, a+1)
	write(next, b+1)
	// Output:
	// token 5 of "counter" is refused
	// token 7 of "counter" writes 1 <nil>
}
