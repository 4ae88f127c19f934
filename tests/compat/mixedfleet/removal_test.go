//go:build unix

package mixedfleet

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/tests/compat/mixedfleet/worker"
)

func administrator(t *testing.T, srv *etcdtest.Server) *admin.Client {
	return admin.New(srv.Client(t), admin.Options{Auditor: audit.Func(func(context.Context, audit.Record) {})})
}

// The entry of a holder says that it takes requests, in words that either version reads. Asked to let go, it is told,
// and the name is free once it has released.
func TestHolderOfTheLastReleaseTakesRequests(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	holder := start(t, old, srv)
	token := holdfast.Token(holder.do(worker.Order{What: worker.Lock, Name: "x"}).Token)
	holder.tell(worker.Order{What: worker.Lost})
	told := holder.later(worker.Lost)
	if err := administrator(t, srv).Kick(t.Context(), holdfast.KindLock, "x", token, "deploy"); err != nil {
		t.Errorf("Kick: %v", err)
	}
	if lost := <-told; lost.err != nil || !strings.Contains(lost.Err, "deploy") {
		t.Errorf("the holder: %+v", lost)
	}
	holder.do(worker.Order{What: worker.Write, Key: "data", Value: "still held"})
	holder.tell(worker.Order{What: worker.Unlock})
	holder.reply(worker.Unlock) // with the reason for which it was asked
	srv.WaitForKeys(t, entries("lock", "x"), 0)
}

// A waiter of the other version takes an entry that was moved for one like any other: it holds after the holder was
// told.
func TestRemovedHolderIsToldBeforeTheOtherGenerationHolds(t *testing.T) {
	t.Parallel()
	inBothDirections(t, func(t *testing.T, srv *etcdtest.Server, first, second generation) {
		holder, waiter := start(t, first, srv), start(t, second, srv)
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
	})
}
