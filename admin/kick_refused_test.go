package admin_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/locker"
)

// Nothing is written for a token that does not hold, or a holder that would not learn of it.
func TestKickOfWhatCannotBeAskedWritesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		lk, _ := queueUp(t, "job", a, b)
		term, err := election.New(a, "led").Campaign(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		const prefix = "/legacy/job"
		grant, err := srv.Client(t).Grant(t.Context(), 3600)
		if err != nil {
			t.Fatal(err)
		}
		foreign, err := srv.Client(t).Put(t.Context(), prefix+"/694d81ab", "", clientv3.WithLease(grant.ID))
		if err != nil {
			t.Fatal(err)
		}
		const older = `{"v":1,"owner":"old","mode":"exclusive","queued_at":"2026-02-03T04:05:06.007Z"}`
		old, err := srv.Client(t).Put(t.Context(), "holdfast/lock/old/@/694d81ab-AAAAAAAAAAAAAAAA", older)
		if err != nil {
			t.Fatal(err)
		}
		rests, err := locker.NewMutex(a, "rests").With(locker.Options{MinHold: time.Minute}).Lock(t.Context())
		if err != nil || rests.Unlock(t.Context()) != nil {
			t.Fatal(err)
		}
		waiter := srv.Keys(jobEntries)[1]
		if waiter.CreateRevision < lk.Token().Revision() {
			waiter = srv.Keys(jobEntries)[0]
		}
		before := len(srv.History(""))
		for what, c := range map[string]struct {
			call func() error
			want error
		}{
			"a token that never held": {func() error {
				return ops.Kick(t.Context(), admin.Lock, "job", 1, "x")
			}, admin.ErrNotHeld},
			"another epoch": {func() error {
				return ops.Kick(t.Context(), admin.Lock, "job", lk.Token()|1<<48, "x")
			}, admin.ErrNotHeld},
			"a name that MinHold keeps": {func() error {
				return ops.Kick(t.Context(), admin.Lock, "rests", rests.Token(), "x")
			}, admin.ErrNotHeld},
			"a free lock": {func() error {
				return ops.Kick(t.Context(), admin.Lock, "free", lk.Token(), "x")
			}, admin.ErrNotHeld},
			"a waiter": {func() error {
				return ops.Kick(t.Context(), admin.Lock, "job", fencing.Token(waiter.CreateRevision), "x")
			}, admin.ErrWaits},
			"an election's name": {func() error {
				return ops.Kick(t.Context(), admin.Lock, "led", term.Token(), "x")
			}, admin.ErrNotHeld},
			"an election's entry": {func() error {
				return ops.KickAt(t.Context(), "holdfast/election/led/@", term.Token(), "x")
			}, admin.ErrNotTold},
			"another client": {func() error {
				return ops.KickAt(t.Context(), prefix, fencing.Token(foreign.Header.Revision), "x")
			}, admin.ErrNotTold},
			"an older version": {func() error {
				return ops.Kick(t.Context(), admin.Lock, "old", fencing.Token(old.Header.Revision), "x")
			}, admin.ErrNotTold},
		} {
			err := c.call()
			var failed *admin.HolderError
			if !errors.As(err, &failed) || !errors.Is(err, c.want) || errors.Is(err, holdfast.ErrOutcomeUnknown) {
				t.Errorf("%s: %v", what, err)
			}
			if (what == "a waiter" || what == "a token that never held") && failed.Holder.Token != lk.Token() {
				t.Errorf("%s: it does not say that %v holds: %v", what, lk.Token(), err)
			}
		}
		if n := len(srv.History("")) - before; n != 0 || len(ops.records) != 0 {
			t.Errorf("%d writes, records %+v", n, ops.records)
		}
	})
}

// A role that may only read, and etcd's other refusals, are told at once and leave nothing open.
func TestKickThatEtcdRefusesSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		lk := mustLock(t, a, "job")
		cli := srv.Link().Client()
		cli.KV = readOnlyKV{cli.KV}
		err := admin.New(cli, nil).Kick(t.Context(), admin.Lock, "job", lk.Token(), "deploy")
		if !errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("Kick: %v", err)
		}
		if err := lk.Check(); err != nil {
			t.Error(err)
		}
	})
}

// readOnlyKV refuses Txns that write, as etcd does to a role that may only read.
type readOnlyKV struct{ clientv3.KV }

func (kv readOnlyKV) Txn(ctx context.Context) clientv3.Txn { return &readOnlyTxn{Txn: kv.KV.Txn(ctx)} }

type readOnlyTxn struct {
	clientv3.Txn
	writes bool
}

func (t *readOnlyTxn) If(cmps ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(cmps...); return t }

func (t *readOnlyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.writes = slices.ContainsFunc(ops, clientv3.Op.IsPut)
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *readOnlyTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.writes {
		return nil, rpctypes.ErrPermissionDenied
	}
	return t.Txn.Commit()
}

func TestBadInputOfAKickIsRefusedBeforeAnyRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		ops := newAdministrator(srv, "ops")
		ctx := t.Context()
		named := func(owner string) *admin.Client {
			return admin.New(ops.link.Client(), &admin.Options{Owner: owner})
		}
		var none context.Context
		for what, call := range map[string]func() error{
			"no client":           func() error { return admin.New(nil, nil).Kick(ctx, admin.Lock, "x", 1, "x") },
			"no context":          func() error { return ops.Kick(none, admin.Lock, "x", 1, "x") },
			"no token":            func() error { return ops.Kick(ctx, admin.Lock, "x", 0, "x") },
			"negative token":      func() error { return ops.Kick(ctx, admin.Lock, "x", -1, "x") },
			"no reason":           func() error { return ops.Kick(ctx, admin.Lock, "x", 1, "") },
			"long reason":         func() error { return ops.Kick(ctx, admin.Lock, "x", 1, strings.Repeat("x", 257)) },
			"reason not UTF-8":    func() error { return ops.Kick(ctx, admin.Lock, "x", 1, "a\xff") },
			"bad name":            func() error { return ops.Kick(ctx, admin.Lock, "a//b", 1, "x") },
			"empty prefix":        func() error { return ops.KickAt(ctx, "", 1, "x") },
			"long owner":          func() error { return named(strings.Repeat("x", 257)).Kick(ctx, admin.Lock, "x", 1, "x") },
			"owner not UTF-8":     func() error { return named("\xff").Kick(ctx, admin.Lock, "x", 1, "x") },
			"removal, no reason":  func() error { return ops.Remove(ctx, admin.Lock, "x", 1, "") },
			"removal, no token":   func() error { return ops.Remove(ctx, admin.Lock, "x", 0, "x") },
			"removal, bad prefix": func() error { return ops.RemoveAt(ctx, "", 1, "x") },
		} {
			var argument *holdfast.ArgumentError
			var name *holdfast.NameError
			if err := call(); !errors.As(err, &argument) && !errors.As(err, &name) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := ops.link.Count(); len(n) != 0 || len(ops.records) != 0 {
			t.Errorf("requests %v, records %+v", n, ops.records)
		}
	})
}
