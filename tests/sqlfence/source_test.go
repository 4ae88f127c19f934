package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/internal/fence"
	"github.com/holdfast-go/holdfast/locker"
)

// holder is a fencing.Holder that needs no etcd.
type holder struct {
	name  string
	token fencing.Token
	err   error // of Check
}

func (h *holder) Token() fencing.Token     { return h.token }
func (h *holder) Check() error             { return h.err }
func (h *holder) Client() *clientv3.Client { return nil }
func (h *holder) IsOwner() clientv3.Cmp    { return clientv3.Cmp{} }

// namedHolder is one that knows the name of its lock.
type namedHolder struct{ *holder }

func (h namedHolder) Name() string { return h.name }

// closed returns a guard whose every query fails with another error than those
// that are looked for.
func closed(t *testing.T) *sqlfence.Guard {
	t.Helper()
	d := newDatabase(t, kinds[0])
	g := d.guard(t, nil)
	if err := d.db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Do(t.Context(), "r", fencing.Token(1), neverCalled(t)); err == nil || errors.Is(err, fencing.ErrNoToken) {
		t.Fatalf("on a closed database: %v", err)
	}
	return g
}

func neverCalled(t *testing.T) func(context.Context, *sql.Tx) error {
	return func(context.Context, *sql.Tx) error {
		t.Error("fn was called")
		return nil
	}
}

func TestWhatCannotWriteIsRefusedWithoutAQuery(t *testing.T) {
	g := closed(t)
	lost := &holdfast.LostError{Kind: "lock", Name: "job", Token: 5, Cause: holdfast.CauseExpired}
	var nilLock *locker.Lock
	for name, c := range map[string]struct {
		source fencing.Source
		want   error
	}{
		"nil":               {nil, fencing.ErrNoToken},
		"a nil lock":        {nilLock, fencing.ErrNoToken},
		"zero":              {fencing.Token(0), fencing.ErrNoToken},
		"negative":          {fencing.Token(-1), fencing.ErrNoToken},
		"holder of nothing": {&holder{}, fencing.ErrNoToken},
		"lost":              {&holder{token: 5, err: lost}, holdfast.ErrLost},
		"suspended":         {&holder{token: 5, err: holdfast.ErrSuspended}, holdfast.ErrSuspended},
		"released":          {&holder{token: 5, err: holdfast.ErrReleased}, holdfast.ErrReleased},
		"NUL in its name":   {namedHolder{&holder{"a\x00b", 5, nil}}, fencing.ErrBadClaim},
		"name not of UTF-8": {namedHolder{&holder{"a\xff", 5, nil}}, fencing.ErrBadClaim},
		"long name":         {namedHolder{&holder{strings.Repeat("a", fencing.MaxName+1), 5, nil}}, fencing.ErrBadClaim},
	} {
		if err := g.Do(t.Context(), "r", c.source, neverCalled(t)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for name, c := range map[string]fencing.Claim{
		"nothing": {}, "no name": {Token: 5}, "no token": {Name: "job"}, "negative": {Name: "job", Token: -1},
	} {
		if err := g.DoClaim(t.Context(), "r", c, neverCalled(t)); !errors.Is(err, fencing.ErrBadClaim) {
			t.Errorf("claim of %s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Do(ctx, "r", fencing.Token(1), neverCalled(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("context that has ended: %v", err)
	}
	if err := g.Do(t.Context(), "r", fencing.Token(1), nil); !isArgument(err, "fn") {
		t.Errorf("nil fn: %v", err)
	}
}

func isArgument(err error, argument string) bool {
	e, ok := errors.AsType[*holdfast.ArgumentError](err)
	return ok && e.Argument == argument
}

func TestHolderThatIsLostDuringItsWorkDoesNotCommit(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		h := &holder{token: 5}
		err := g.Do(t.Context(), "r", h, func(ctx context.Context, tx *sql.Tx) error {
			h.err = &holdfast.LostError{Kind: "lock", Name: "job", Token: 5, Cause: holdfast.CauseExpired}
			return d.write("r", 5, "never")(ctx, tx)
		})
		e, ok := errors.AsType[*sqlfence.UncommittedError](err)
		if !ok || e.Resource != "r" || e.Token != 5 || !errors.Is(err, holdfast.ErrLost) || fence.VerdictOf(err) != fence.NothingDone {
			t.Errorf("Do: %v", err)
		}
		if works, _ := d.works(t, "r"); len(works) > 0 || d.mark(t, "r") != 0 {
			t.Errorf("works %v, mark %v", works, d.mark(t, "r"))
		}
	})
}

func TestWorkFindsItsHolderInTheContext(t *testing.T) {
	d := newDatabase(t, kinds[0])
	g := d.guard(t, nil)
	h, outer := &holder{token: 5}, &holder{token: 6}
	ctx := fencing.NewContext(t.Context(), outer)
	for source, want := range map[fencing.Source]fencing.Holder{h: h, fencing.Token(5): outer} {
		err := g.Do(ctx, "r", source, func(ctx context.Context, _ *sql.Tx) error {
			if got, _ := fencing.FromContext(ctx); got != want {
				t.Errorf("%v: found %v", source, got)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestTokenOfAnotherLockIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		var records []audit.Record
		g := d.guard(t, &sqlfence.Options{Auditor: audit.Func(func(_ context.Context, r audit.Record) { records = append(records, r) })})
		// A bare token first: the mark has no name yet, and takes the next one's.
		for _, s := range []fencing.Source{fencing.Token(5), namedHolder{&holder{"a", 6, nil}}, fencing.Token(7)} {
			if err := g.Do(t.Context(), "r", s, d.write("r", s.Token(), "")); err != nil {
				t.Fatal(err)
			}
		}
		for _, token := range []fencing.Token{6, 7, 8} {
			err := g.Do(t.Context(), "r", namedHolder{&holder{"A", token, nil}}, neverCalled(t))
			if e, ok := errors.AsType[*fencing.OtherNameError](err); !ok || e.Want != "a" || e.Got != "A" || e.Resource != "r" || !errors.Is(err, fencing.ErrOtherName) {
				t.Errorf("token %v: %v", token, err)
			}
		}
		if d.mark(t, "r") != 7 || len(records) != 3 {
			t.Errorf("mark %v, records %+v", d.mark(t, "r"), records)
		}
		if err := g.DoClaim(t.Context(), "r", fencing.Claim{Name: "a", Token: 8}, d.write("r", 8, "")); err != nil {
			t.Error(err)
		}
		if err := g.DoClaim(t.Context(), "r", fencing.Claim{Name: "a", Token: 7}, neverCalled(t)); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("Do: %v", err)
		}
	})
}

func TestStoreGivesItsEffectTheTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		s := d.guard(t, &sqlfence.Options{Retry: retry()}).Store()
		c := fencing.Claim{Name: "lock", Token: 5}
		effect := func(result error) func(context.Context) error {
			return func(ctx context.Context) error {
				tx, ok := sqlfence.TxFromContext(ctx)
				if !ok {
					t.Fatal("no transaction")
				}
				return errors.Join(d.write("r", 5, "effect")(ctx, tx), result)
			}
		}
		if err := s.Do(t.Context(), "r", c, effect(nil)); err != nil {
			t.Error(err)
		}
		// An effect is not repeated, though this error is of those that are.
		if err := s.Do(t.Context(), "r", c, effect(gaveUp{})); !errors.Is(err, gaveUp{}) {
			t.Errorf("Do: %v", err)
		}
		if works, _ := d.works(t, "r"); len(works) != 1 {
			t.Errorf("works %v", works)
		}
		c.Token = 4
		if err := s.Do(t.Context(), "r", c, effect(nil)); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("Do: %v", err)
		}
		if err := s.Do(t.Context(), "r", c, nil); !isArgument(err, "effect") {
			t.Errorf("Do: %v", err)
		}
	})
	if _, ok := sqlfence.TxFromContext(t.Context()); ok {
		t.Error("a transaction out of nowhere")
	}
}
