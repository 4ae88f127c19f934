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
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
)

// Nothing is written for a token that does not hold, or a holder that would not learn of it.
func TestKickOfWhatCannotBeAskedWritesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		ops := newAdministrator(srv, "ops")
		lk, _ := queueUp(t, "job", a, b)
		term, err := election.New(a, "led").With(election.Options{Value: "a"}).Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const lookalike = `{"v":2,"queued_at":"2026-02-03T04:05:06Z","told_within_ms":7000}`
		foreignTerm, err := election.NewAt(a, "/legacy/led").With(election.Options{Value: lookalike}).Campaign(t.Context())
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
		const older = `{"v":2,"owner":"old","mode":"exclusive","queued_at":"2026-02-03T04:05:06.007Z"}`
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
				return ops.Kick(t.Context(), holdfast.KindLock, "job", 1, "x")
			}, admin.ErrNotHeld},
			"another epoch": {func() error {
				return ops.Kick(t.Context(), holdfast.KindLock, "job", lk.Token()|1<<48, "x")
			}, admin.ErrNotHeld},
			"a name that MinHold keeps": {func() error {
				return ops.Kick(t.Context(), holdfast.KindLock, "rests", rests.Token(), "x")
			}, admin.ErrNotHeld},
			"a free lock": {func() error {
				return ops.Kick(t.Context(), holdfast.KindLock, "free", lk.Token(), "x")
			}, admin.ErrNotHeld},
			"a waiter": {func() error {
				return ops.Kick(t.Context(), holdfast.KindLock, "job", holdfast.Token(waiter.CreateRevision), "x")
			}, admin.ErrWaits},
			"an election's name": {func() error {
				return ops.Kick(t.Context(), holdfast.KindLock, "led", term.Token(), "x")
			}, admin.ErrNotHeld},
			"a leader under a prefix": {func() error {
				return ops.Kick(t.Context(), admin.ElectionAt, "/legacy/led", foreignTerm.Token(), "x")
			}, admin.ErrNotTold},
			"another client": {func() error {
				return ops.Kick(t.Context(), admin.LockAt, prefix, holdfast.Token(foreign.Header.Revision), "x")
			}, admin.ErrNotTold},
			"an older version": {func() error {
				return ops.Kick(t.Context(), holdfast.KindLock, "old", holdfast.Token(old.Header.Revision), "x")
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

// A role that may only read, a full store, and etcd's other refusals are told at once and leave nothing open.
func TestKickThatEtcdRefusesSaysSo(t *testing.T) {
	for _, refusal := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrNoSpace} {
		inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
			a, _ := newSession(t, srv, "a")
			lk := mustLock(t, a, "job")
			cli := srv.Link().Client()
			cli.KV = &refusingKV{KV: cli.KV, err: refusal}
			adm := admin.New(cli, admin.Options{Auditor: audit.Func(func(_ context.Context, r audit.Record) {
				t.Errorf("recorded, though nothing was done: %v", r.Err)
			})})
			for what, call := range map[string]func(context.Context, holdfast.Kind, string, holdfast.Token, string) error{
				"kick": adm.Kick, "remove": adm.Remove,
			} {
				err := call(t.Context(), holdfast.KindLock, "job", lk.Token(), "deploy")
				if !errors.Is(err, refusal) || errors.Is(err, holdfast.ErrOutcomeUnknown) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := lk.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The write that fills a store is carried out, and answered like a refusal. What stands in the entry tells.
func TestKickThatHasFilledTheStoreSucceeds(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		cli := j.ops.link.Client()
		cli.KV = &refusingKV{KV: cli.KV, err: rpctypes.ErrNoSpace, after: true}
		j.mustKick(t)
		ends(t, j.lk, holdfast.CauseKicked)
		mustRemove(t, j.ops, j.lk) // two writes, each of which is answered so
		q, err := j.ops.Show(t.Context(), holdfast.KindLock, "job")
		if h, _ := q.Holder(); err != nil || h.Notice.Until.IsZero() || len(j.ops.records) != 2 {
			t.Errorf("%+v, %v, records %v", h, err, j.ops.records)
		}
	})
}

// refusingKV answers Txns that write with an error, without or after carrying them out.
type refusingKV struct {
	clientv3.KV
	err   error
	after bool
}

func (kv *refusingKV) Txn(ctx context.Context) clientv3.Txn {
	return &refusedTxn{Txn: kv.KV.Txn(ctx), kv: kv}
}

type refusedTxn struct {
	clientv3.Txn
	kv     *refusingKV
	writes bool
}

func (t *refusedTxn) If(cmps ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(cmps...); return t }

func (t *refusedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.writes = slices.ContainsFunc(ops, clientv3.Op.IsPut)
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *refusedTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

func (t *refusedTxn) Commit() (*clientv3.TxnResponse, error) {
	switch {
	case !t.writes:
		return t.Txn.Commit()
	case t.kv.after:
		if _, err := t.Txn.Commit(); err != nil {
			return nil, err
		}
	}
	return nil, t.kv.err
}

func TestBadInputOfAKickIsRefusedBeforeAnyRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, _ *admin.Client) {
		ops := newAdministrator(srv, "ops")
		ctx := t.Context()
		named := func(owner string) *admin.Client {
			return admin.New(ops.link.Client(), admin.Options{Owner: owner})
		}
		var none context.Context
		for what, call := range map[string]func() error{
			"no client": func() error {
				return admin.New(nil, admin.Options{}).Kick(ctx, holdfast.KindLock, "x", 1,
					"x")
			},
			"no context":       func() error { return ops.Kick(none, holdfast.KindLock, "x", 1, "x") },
			"no token":         func() error { return ops.Kick(ctx, holdfast.KindLock, "x", 0, "x") },
			"negative token":   func() error { return ops.Kick(ctx, holdfast.KindLock, "x", -1, "x") },
			"no reason":        func() error { return ops.Kick(ctx, holdfast.KindLock, "x", 1, "") },
			"long reason":      func() error { return ops.Kick(ctx, holdfast.KindLock, "x", 1, strings.Repeat("x", 257)) },
			"reason not UTF-8": func() error { return ops.Kick(ctx, holdfast.KindLock, "x", 1, "a\xff") },
			"bad name":         func() error { return ops.Kick(ctx, holdfast.KindLock, "a//b", 1, "x") },
			"empty prefix":     func() error { return ops.Kick(ctx, admin.LockAt, "", 1, "x") },
			"long owner": func() error {
				return named(strings.Repeat("x", 257)).Kick(ctx, holdfast.KindLock, "x", 1, "x")
			},
			"owner not UTF-8":     func() error { return named("\xff").Kick(ctx, holdfast.KindLock, "x", 1, "x") },
			"removal, no reason":  func() error { return ops.Remove(ctx, holdfast.KindLock, "x", 1, "") },
			"removal, no token":   func() error { return ops.Remove(ctx, holdfast.KindLock, "x", 0, "x") },
			"removal, bad prefix": func() error { return ops.Remove(ctx, admin.LockAt, "", 1, "x") },
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
