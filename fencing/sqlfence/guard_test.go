package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/locker"
)

func TestSourceThatCannotWriteIsRefusedWithoutAQuery(t *testing.T) {
	silenceLog(t)
	g := unreachableGuard(t)
	lost := &holdfast.LostError{Kind: holdfast.KindLock, Name: "job", Token: 5, Cause: holdfast.CauseExpired}
	var nilLock *locker.Lock
	for name, c := range map[string]struct {
		source fencing.Source
		want   error
	}{
		"nil":                {nil, holdfast.ErrNoToken},
		"nil lock":           {nilLock, holdfast.ErrNoToken},
		"zero":               {holdfast.Token(0), holdfast.ErrNoToken},
		"negative":           {holdfast.Token(-1), holdfast.ErrNoToken},
		"holder of nothing":  {&holder{}, holdfast.ErrNoToken},
		"lost":               {&holder{token: 5, err: lost}, holdfast.ErrLost},
		"suspended":          {&holder{token: 5, err: holdfast.ErrSuspended}, holdfast.ErrSuspended},
		"released":           {&holder{token: 5, err: holdfast.ErrReleased}, holdfast.ErrReleased},
		"NUL in its name":    {&holder{"a\x00b", 5, nil}, fencing.ErrBadClaim},
		"name is not UTF-8":  {&holder{"a\xff", 5, nil}, fencing.ErrBadClaim},
		"name that is large": {&holder{strings.Repeat("a", fencing.MaxName+1), 5, nil}, fencing.ErrBadClaim},
	} {
		err := g.Do(t.Context(), "r", c.source, neverCalled(t))
		if !errors.Is(err, c.want) || !errors.Is(err, fencing.ErrNotDone) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if h, ok := c.source.(*holder); ok && !strings.Contains(err.Error(), "with token "+h.token.String()+":") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]fencing.Claim{
		"nothing": {}, "no name": {Token: 5}, "no token": {Name: "job"}, "negative": {Name: "job", Token: -1},
	} {
		if err := g.DoClaim(t.Context(), "r", c, neverCalled(t)); !errors.Is(err, fencing.ErrBadClaim) {
			t.Errorf("claim with %s: %v", name, err)
		}
	}
}

func TestEndedContextIsRefusedWithoutAQuery(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := unreachableGuard(t).Do(ctx, "r", holdfast.Token(1), neverCalled(t))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, fencing.ErrNotDone) ||
		!strings.Contains(err.Error(), "not sent") {
		t.Errorf("error is %v", err)
	}
}

func TestMissingFunctionIsRefused(t *testing.T) {
	g := unreachableGuard(t)
	if err := g.Do(t.Context(), "r", holdfast.Token(1), nil); !isArgument(err, "fn") {
		t.Errorf("Do: %v", err)
	}
	if err := g.Store().Do(t.Context(), "r", fencing.Claim{Name: "job", Token: 1}, nil); !isArgument(err, "effect") {
		t.Errorf("Store.Do: %v", err)
	}
	m, err := sqlfence.NewMarks(sqlfence.Postgres, sqlfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Raise(t.Context(), sqlfence.SQLTx(nil), "r", holdfast.Token(5)); !isArgument(err, "tx") {
		t.Errorf("SQLTx(nil): %v", err)
	}
	if err := m.Raise(t.Context(), nil, "r", holdfast.Token(5)); !isArgument(err, "tx") {
		t.Errorf("Raise: %v", err)
	}
}

func silenceLog(t *testing.T) {
	old := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	t.Cleanup(func() { slog.SetDefault(old) })
}

// withoutAutocommit is a database that keeps a lock for each statement outside a transaction, as MySQL does with
// autocommit=0, and knows one statement.
type withoutAutocommit struct {
	t         *testing.T
	inTx      bool
	committed []string
	sent      []string // in the transaction
}

var errOtherStatement = errors.New("unknown statement")

func (d *withoutAutocommit) Driver() driver.Driver                        { return nil }
func (d *withoutAutocommit) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *withoutAutocommit) Close() error                                 { return nil }
func (d *withoutAutocommit) Prepare(string) (driver.Stmt, error)          { return nil, errOtherStatement }

func (d *withoutAutocommit) Begin() (driver.Tx, error) {
	d.inTx, d.sent = true, nil
	return d, nil
}

func (d *withoutAutocommit) Commit() error {
	d.inTx, d.committed = false, append(d.committed, d.sent...)
	return nil
}

func (d *withoutAutocommit) Rollback() error {
	d.inTx = false
	return nil
}

func (d *withoutAutocommit) ExecContext(
	_ context.Context, query string, _ []driver.NamedValue,
) (driver.Result, error) {
	if !d.inTx {
		d.t.Errorf("outside of a transaction: %s", query)
	}
	if !strings.HasPrefix(query, "INSERT IGNORE") {
		return nil, errOtherStatement
	}
	d.sent = append(d.sent, query)
	return driver.RowsAffected(1), nil
}

func TestFloorIsAddedInATransaction(t *testing.T) {
	d := &withoutAutocommit{t: t}
	db := sql.OpenDB(d)
	defer db.Close()
	g, err := sqlfence.New(db, sqlfence.MySQL, sqlfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Do(t.Context(), "r", holdfast.Token(5), neverCalled(t)); !errors.Is(err, errOtherStatement) {
		t.Error(err)
	}
	if len(d.committed) != 1 {
		t.Errorf("committed: %q", d.committed)
	}
}
