package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// raised writes in a transaction of its own, after a raise.
func (d *database) raised(t *testing.T, m *sqlfence.Marks, resource string, source fencing.Source, work string) error {
	t.Helper()
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := m.Raise(t.Context(), sqlfence.SQLTx(tx), resource, source); err != nil {
		return err
	}
	if err := d.write(resource, source.Token(), work)(t.Context(), tx); err != nil {
		return err
	}
	return tx.Commit()
}

func TestRaiseGuardsTheCallersTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		m, err := sqlfence.NewMarks(d.dialect, sqlfence.Options{Auditor: quiet})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			token holdfast.Token
			want  error
		}{{5, nil}, {5, nil}, {7, nil}, {5, fencing.ErrStale}, {0, holdfast.ErrNoToken}} {
			err := d.raised(t, m, "r", step.token, step.token.String())
			if !errors.Is(err, step.want) || (err == nil) != (step.want == nil) {
				t.Errorf("token %v: %v, want %v", step.token, err, step.want)
			}
		}
		if err := g.Do(t.Context(), "r", holdfast.Token(6), neverCalled(t)); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("a guard on the same table: %v", err)
		}
		if works, _ := d.works(t, "r"); !slices.Equal(works, []string{"5", "5", "7"}) || d.mark(t, "r") != 7 {
			t.Errorf("works %v, mark %v", works, d.mark(t, "r"))
		}
	})
}

// The caller commits in spite of the refusal.
func TestRefusedRaiseThatIsCommittedLeavesTheMark(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		if err := g.Do(t.Context(), "r", &holder{"a", 7, nil}, d.write("r", 7, "")); err != nil {
			t.Fatal(err)
		}
		const huge = holdfast.Token(2000<<48 | 1)
		for _, c := range []struct {
			resource string
			claim    fencing.Claim
			want     error
		}{
			{"r", fencing.Claim{Name: "a", Token: 5}, fencing.ErrStale},
			{"r", fencing.Claim{Name: "b", Token: 9}, fencing.ErrOtherName},
			{"r", fencing.Claim{Name: "a", Token: huge}, fencing.ErrEpochStep},
			{"new", fencing.Claim{Name: "a", Token: huge}, fencing.ErrEpochStep},
		} {
			tx, err := d.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			err = d.marks(quiet).RaiseClaim(t.Context(), sqlfence.SQLTx(tx), c.resource, c.claim)
			if !errors.Is(err, c.want) {
				t.Errorf("%v on %s: %v, want %v", c.claim, c.resource, err, c.want)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		if d.mark(t, "r") != 7 || d.mark(t, "new") > 1 {
			t.Errorf("marks %v, %v", d.mark(t, "r"), d.mark(t, "new"))
		}
		for _, resource := range []string{"r", "new"} {
			next := fencing.Claim{Name: "a", Token: 8}
			if err := g.DoClaim(t.Context(), resource, next, d.write(resource, 8, "")); err != nil {
				t.Errorf("%s: the next holder: %v", resource, err)
			}
		}
	})
}

func TestRaiseInATransactionOfPgx(t *testing.T) {
	d := newDatabase(t, kinds[1])
	d.guard(t, nil)
	m, err := sqlfence.NewMarks(sqlfence.Postgres, sqlfence.Options{Auditor: quiet})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), postgresDSN(d.id))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, step := range []struct {
		token holdfast.Token
		want  error
	}{{5, nil}, {7, nil}, {5, fencing.ErrStale}} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = m.Raise(t.Context(), sqlfence.PgxTx(tx), "r", step.token)
		if !errors.Is(err, step.want) || (err == nil) != (step.want == nil) {
			t.Errorf("token %v: %v, want %v", step.token, err, step.want)
		}
		if err == nil {
			const insert = "INSERT INTO history (resource, token, work) VALUES ('r', $1, '')"
			_, err = tx.Exec(t.Context(), insert, int64(step.token))
			err = errors.Join(err, tx.Commit(t.Context()))
		} else {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if d.mark(t, "r") != 7 {
		t.Errorf("mark %v", d.mark(t, "r"))
	}
}

// A pool or connection would raise the mark in a transaction of its own, which guards nothing.
func TestPgxTxTakesTransactionsOnly(t *testing.T) {
	argument := reflect.TypeOf(sqlfence.PgxTx[pgx.Row]).In(0)
	if !reflect.TypeFor[pgx.Tx]().Implements(argument) {
		t.Error("not a pgx.Tx")
	}
	for _, other := range []reflect.Type{
		reflect.TypeFor[*pgx.Conn](), reflect.TypeFor[*pgxpool.Pool](), reflect.TypeFor[*pgxpool.Conn](),
	} {
		if other.Implements(argument) {
			t.Errorf("it takes a %v", other)
		}
	}
}

// A rollback to a savepoint takes the mark back. Raised again, it guards.
func TestRaiseAgainAfterARollbackToASavepoint(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		d.guard(t, nil)
		run := func(token holdfast.Token, raiseAgain bool) error {
			tx, err := d.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			raise := func() error { return d.marks(quiet).Raise(t.Context(), sqlfence.SQLTx(tx), "r", token) }
			statement := func(query string) {
				if _, err := tx.ExecContext(t.Context(), query); err != nil {
					t.Error(err)
				}
			}
			statement("SAVEPOINT nested")
			if err := raise(); err != nil {
				return err
			}
			statement("ROLLBACK TO SAVEPOINT nested")
			if raiseAgain {
				if err := raise(); err != nil {
					return err
				}
			}
			return tx.Commit()
		}
		if err := run(7, false); err != nil || d.mark(t, "r") != 0 {
			t.Errorf("mark %v, %v", d.mark(t, "r"), err)
		}
		if err := run(7, true); err != nil || d.mark(t, "r") != 7 {
			t.Errorf("raised again: mark %v, %v", d.mark(t, "r"), err)
		}
		if err := run(5, true); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("a stale token: %v", err)
		}
	})
}

func TestTokenFarAheadOfTheMarkIsNotMarked(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		at := func(epoch int64) holdfast.Token {
			token, err := holdfast.NewToken(epoch, 9)
			if err != nil {
				t.Fatal(err)
			}
			return token
		}
		for _, step := range []struct {
			epoch int64
			want  error
		}{
			{1025, fencing.ErrEpochStep}, {1024, nil}, {2049, fencing.ErrEpochStep}, {2048, nil},
			{32767, fencing.ErrEpochStep},
		} {
			err := g.Do(t.Context(), "r", at(step.epoch), d.write("r", at(step.epoch), ""))
			if !errors.Is(err, step.want) || (err == nil) != (step.want == nil) {
				t.Errorf("epoch %d: %v, want %v", step.epoch, err, step.want)
			}
		}
		if d.mark(t, "r") != at(2048) {
			t.Errorf("mark %v", d.mark(t, "r"))
		}
	})
}

// A value that was read before the guarded transaction is written in it. If the newer
// holder raises the mark before it reads, the older one's write is refused.
func TestRaiseAtAcquisitionKeepsAReadFromBeingOverwritten(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		d.exec(t, "INSERT INTO accounts (id, balance) VALUES (1, 0), (2, 0)")
		read := func(id int) int64 { return d.number(t, "SELECT balance FROM accounts WHERE id = ?", id) }
		increment := func(id int, token holdfast.Token, seen int64) error {
			return g.Do(t.Context(), string(rune('0'+id)), token, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, d.sql("UPDATE accounts SET balance = ? WHERE id = ?"), seen+1, id)
				return err
			})
		}
		nothing := func(context.Context, *sql.Tx) error { return nil }
		for id, raise := range map[int]bool{1: false, 2: true} {
			acknowledged := int64(0)
			older := read(id)
			if raise {
				if err := g.Do(t.Context(), string(rune('0'+id)), holdfast.Token(7), nothing); err != nil {
					t.Fatal(err)
				}
			}
			newer := read(id)
			for _, err := range []error{increment(id, 5, older), increment(id, 7, newer)} {
				if err == nil {
					acknowledged++
				}
			}
			if lost := acknowledged - read(id); raise && lost != 0 || !raise && lost != 1 {
				t.Errorf("raised first: %v: %d increments succeeded, the counter is %d", raise, acknowledged, read(id))
			}
		}
	})
}
