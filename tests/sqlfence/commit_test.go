package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

func TestCommitWhoseReplyIsLostIsUnknownAndNotRepeated(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		commits := 0
		l := &lossy{Connector: d.connector, commit: func(real func() error) error {
			commits++
			return errors.Join(io.ErrUnexpectedEOF, real())
		}}
		g := d.guardOver(t, d.pool(t, l), &sqlfence.Options{Retry: retry()})
		l.addFloor(t, g)
		err := g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "landed"))
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, io.ErrUnexpectedEOF) || commits != 1 {
			t.Errorf("%d commits, %v", commits, err)
		}
		if works, _ := d.works(t, "r"); !slices.Equal(works, []string{"landed"}) {
			t.Errorf("works %v", works)
		}
	})
}

func TestContextThatEndsDuringTheCommitLeavesItUnknown(t *testing.T) {
	d := newDatabase(t, kinds[0])
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	l := &lossy{Connector: d.connector, commit: func(real func() error) error {
		cancel(why)
		return errors.Join(context.Canceled, real())
	}}
	g := d.guardOver(t, d.pool(t, l), nil)
	l.addFloor(t, g)
	err := g.Do(ctx, "r", holdfast.Token(5), d.write("r", 5, ""))
	if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, why) {
		t.Errorf("Do: %v", err)
	}
}

func TestCommitThatWasRefusedIsNotUnknown(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		commits := 0
		l := &lossy{Connector: d.connector, commit: func(real func() error) error {
			if commits++; commits == 1 {
				return gaveUp{} // and the transaction stays open on its connection
			}
			return real()
		}}
		db := d.pool(t, l)
		g := d.guardOver(t, db, &sqlfence.Options{Retry: retry()})
		l.addFloor(t, g)
		db.SetMaxIdleConns(0)
		if err := g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "once")); err != nil {
			t.Error(err)
		}
		if works, _ := d.works(t, "r"); commits != 2 || !slices.Equal(works, []string{"once"}) {
			t.Errorf("%d commits, works %v", commits, works)
		}
	})
}

// SQLite may learn only when it commits that the disk is full. Then it has written nothing.
func TestCommitOnAFullDiskIsNotUnknown(t *testing.T) {
	d := newDatabase(t, kinds[0])
	limited := d.pool(t, d.connector)
	limited.SetMaxOpenConns(1)
	if _, err := limited.Exec("PRAGMA max_page_count = 1"); err != nil { // it grows no more
		t.Fatal(err)
	}
	_, full := limited.Exec("CREATE TABLE large AS SELECT zeroblob(1000000)")
	if full == nil {
		t.Fatal("the database has grown")
	}
	db := d.pool(t, &lossy{Connector: d.connector, commit: func(func() error) error { return full }})
	db.SetMaxIdleConns(0) // the end of the connection rolls back
	err := d.guardOver(t, db, nil).Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, ""))
	if !errors.Is(err, full) || errors.Is(err, holdfast.ErrOutcomeUnknown) {
		t.Errorf("Do: %v", err)
	}
}

func TestConstraintThatFailsAtTheCommitIsNotUnknown(t *testing.T) {
	for _, k := range kinds[:2] { // InnoDB has no deferred constraints
		t.Run(k.name, func(t *testing.T) {
			d := newDatabase(t, k)
			d.db.SetMaxOpenConns(1) // the next write uses the same connection
			d.exec(t, "CREATE TABLE child (parent BIGINT REFERENCES accounts (id) DEFERRABLE INITIALLY DEFERRED)")
			g := d.guard(t, nil)
			err := g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO child (parent) VALUES (99)")
				return err
			})
			if err == nil || errors.Is(err, holdfast.ErrOutcomeUnknown) {
				t.Errorf("Do: %v", err)
			}
			if n := d.number(t, "SELECT count(*) FROM child"); n != 0 || d.mark(t, "r") != 0 {
				t.Errorf("%d rows, mark %v", n, d.mark(t, "r"))
			}
			if err := g.Do(t.Context(), "r", holdfast.Token(5), d.write("r", 5, "")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A prepared transaction (two-phase commit) keeps its locks: a newer holder waits for it.
func TestPreparedTransactionIsNotOvertaken(t *testing.T) {
	d := newDatabase(t, kinds[1])
	g := d.guard(t, nil)
	err := g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
		if err := d.write("r", 5, "prepared")(ctx, tx); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "PREPARE TRANSACTION 'two phases'")
		return err
	})
	if !errors.Is(err, sqlfence.ErrTxEnded) {
		t.Errorf("Do: %v", err)
	}
	newer := make(chan error, 1)
	go func() { // joined by the receive
		newer <- g.Do(t.Context(), "r", holdfast.Token(7), d.write("r", 7, "newer"))
	}()
	d.waitForWaiters(t, 1)
	d.exec(t, "COMMIT PREPARED 'two phases'")
	if err := <-newer; err != nil {
		t.Error(err)
	}
	if works, _ := d.works(t, "r"); !slices.Equal(works, []string{"prepared", "newer"}) {
		t.Errorf("works %v", works)
	}
}
