//go:build unix

package mixedfleet

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// limitOfFormat1 reads a limit as clients of format 1 do: it is a copy of theirs. There the second number was the
// highest limit under which a permit that stands may have been put.
func limitOfFormat1(value string) (permits, high int, ok bool) {
	weightIn := func(text string) int {
		if n, err := strconv.Atoi(text); err == nil && 0 < n && n <= 1024 {
			return n
		}
		return 0
	}
	first, second, _ := strings.Cut(value, " ")
	permits, high = weightIn(first), weightIn(second)
	if permits == 0 || high < permits {
		return 0, 0, false
	}
	return permits, high, true
}

// Clients of format 1 know no turns. So they must not take part, and the limit is one that they refuse.
func TestClientsOfFormat1RefuseTheLimit(t *testing.T) {
	t.Parallel()
	if permits, high, ok := limitOfFormat1("3 5"); permits != 3 || high != 5 || !ok {
		t.Fatalf("a limit of format 1 is read as %d, %d, %v", permits, high, ok)
	}
	srv := etcdtest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sess, err := session.New(ctx, srv.Client(t), session.Options{TTL: lasting})
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close(context.Background())
	refused := func(what string) {
		t.Helper()
		kvs := srv.Keys(t, "holdfast/sem/x/@limit")
		if len(kvs) != 1 {
			t.Fatalf("%s: the limit is %v", what, kvs)
		}
		if permits, high, ok := limitOfFormat1(string(kvs[0].Value)); ok {
			t.Errorf("%s: %q is read as %d, %d", what, kvs[0].Value, permits, high)
		}
	}
	p, err := locker.NewSemaphore(sess, "x", 3).Acquire(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	refused("put by Acquire")
	if err := p.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := locker.NewSemaphore(sess, "x", 3).Resize(ctx, 1024); err != nil {
		t.Fatal(err)
	}
	refused("put by Resize")
}
