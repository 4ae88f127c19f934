package locker_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// logged is a log that several goroutines write.
type logged struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// A role that was made for a foreign prefix before there were claims has no right to these. Its locks exclude, wait and
// hand over without them, and the log says so once.
func TestPrefixIsLockedWithoutClaimsIfTheRoleMayNotPutThem(t *testing.T) {
	t.Parallel()
	root, user, _ := restricted(t)
	const claims = "holdfast/claim//legacy/"
	if _, err := root.RoleRevokePermission(deadline(t), "legacy", claims, clientv3.GetPrefixRangeEnd(claims)); err != nil {
		t.Fatal(err)
	}
	var log logged
	opts := session.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	a, b := open(t, user, opts), open(t, user, opts)
	first, err := locker.NewMutexAt(a, "/legacy/x").Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		lk, err := locker.NewMutexAt(b, "/legacy/x").Lock(deadline(t))
		if err == nil {
			err = lk.Unlock(deadline(t))
		}
		next <- err
	}()
	for n := int64(0); n < 2; { // until the second is queued
		resp, err := root.Get(deadline(t), "/legacy/x/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		n = resp.Count
	}
	select {
	case err := <-next:
		t.Fatalf("the second does not wait: %v", err)
	default:
	}
	if claims, err := root.Get(deadline(t), "holdfast/claim/", clientv3.WithPrefix()); err != nil || claims.Count != 0 {
		t.Errorf("%d claims, %v", claims.Count, err)
	}
	if err := first.Unlock(context.WithoutCancel(deadline(t))); err != nil {
		t.Error(err)
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
	if n := log.count("no right to the claims"); n != 2 {
		t.Errorf("%d warnings of two sessions:\n%s", n, log.text.String())
	}
}
