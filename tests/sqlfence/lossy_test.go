package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// lossy is a connector that calls its functions, if they are not nil, in place of each real Commit and ExecContext.
type lossy struct {
	driver.Connector
	commit func(real func() error) error
	exec   func(query string, real func() (driver.Result, error)) (driver.Result, error)
}

func (l *lossy) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := l.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &lossyConn{c, l}, nil
}

// addFloor lets g, over l, write once with real commits: the first write of a guard commits the floor, too.
func (l *lossy) addFloor(t *testing.T, g *sqlfence.Guard) {
	t.Helper()
	commit := l.commit
	l.commit = nil
	err := g.Do(t.Context(), "before", holdfast.Token(1), func(context.Context, *sql.Tx) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	l.commit = commit
}

// lossyConn forwards the methods that the drivers of these tests implement.
type lossyConn struct {
	driver.Conn
	l *lossy
}

func (c *lossyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &lossyTx{tx, c.l}, nil
}

func (c *lossyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	real := func() (driver.Result, error) { return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args) }
	if c.l.exec == nil {
		return real()
	}
	return c.l.exec(query, real)
}

func (c *lossyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *lossyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *lossyConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type lossyTx struct {
	driver.Tx
	l *lossy
}

func (tx *lossyTx) Commit() error {
	if tx.l.commit == nil {
		return tx.Tx.Commit()
	}
	return tx.l.commit(tx.Tx.Commit)
}
