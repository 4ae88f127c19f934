//go:build unix

package mixedfleet

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/tests/mixedfleet/worker"
)

func administrator(t *testing.T, srv *etcdtest.Server) *admin.Client {
	return admin.New(srv.Client(t), &admin.Options{Auditor: audit.Func(func(context.Context, audit.Record) {})})
}

// The entry of a holder says whether it takes requests. One of an older version would ignore them, so they are refused,
// and nothing is written.
func TestHolderOfAnOlderVersionTakesNoRequests(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	holder := start(t, old, srv)
	token := holdfast.Token(holder.do(worker.Order{What: worker.Lock, Name: "x"}).Token)
	adm := administrator(t, srv)
	if err := adm.Kick(t.Context(), holdfast.KindLock, "x", token, "deploy"); !errors.Is(err, admin.ErrNotTold) {
		t.Errorf("Kick: %v", err)
	}
	if err := adm.Remove(t.Context(), holdfast.KindLock, "x", token, "wedged"); !errors.Is(err, admin.ErrNotTold) {
		t.Errorf("Remove: %v", err)
	}
	holder.do(worker.Order{What: worker.Write, Key: "data", Value: "still held"})
	holder.do(worker.Order{What: worker.Unlock})
}

// A waiter of an older version takes an entry that was moved for one like any other: it holds after the holder was
// told.
func TestRemovedHolderIsToldBeforeAnOlderVersionHolds(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	holder, waiter := start(t, present, srv), start(t, old, srv)
	token := holdfast.Token(holder.do(worker.Order{What: worker.Lock, Name: "x"}).Token)
	waiter.tell(worker.Order{What: worker.Lock, Name: "x"})
	srv.WaitForKeys(t, entries("lock", "x"), 2)
	holder.tell(worker.Order{What: worker.Lost})
	told, acquired := holder.later(worker.Lost), waiter.later(worker.Lock)
	if err := administrator(t, srv).Remove(t.Context(), holdfast.KindLock, "x", token, "wedged"); err != nil {
		t.Fatal(err)
	}
	lost, held := <-told, <-acquired
	if lost.err != nil || lost.Err == "" || held.err != nil || held.Err != "" {
		t.Fatalf("the holder: %+v; the waiter: %+v", lost, held)
	}
	if held.at.Before(lost.at) {
		t.Errorf("the waiter held %v before the holder was told", lost.at.Sub(held.at))
	}
}
