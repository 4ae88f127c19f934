package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// raised runs work in a transaction of the test's own, after a raise.
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

func TestRaiseGuardsATransactionOfTheCallersOwn(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		m, err := sqlfence.NewMarks(d.dialect, &sqlfence.Options{Auditor: unheard})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			token fencing.Token
			want  error
		}{{5, nil}, {5, nil}, {7, nil}, {5, fencing.ErrStale}, {0, fencing.ErrNoToken}} {
			err := d.raised(t, m, "r", step.token, step.token.String())
			if !errors.Is(err, step.want) || (err == nil) != (step.want == nil) {
				t.Errorf("token %v: %v, want %v", step.token, err, step.want)
			}
		}
		if err := g.Do(t.Context(), "r", fencing.Token(6), neverCalled(t)); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("a guard on the same table: %v", err)
		}
		if works, _ := d.works(t, "r"); !slices.Equal(works, []string{"5", "5", "7"}) || d.mark(t, "r") != 7 {
			t.Errorf("works %v, mark %v", works, d.mark(t, "r"))
		}
	})
}

// What is refused stays refused if the caller commits all the same.
func TestRefusedRaiseThatIsCommittedLeavesTheMark(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		if err := g.Do(t.Context(), "r", namedHolder{&holder{"a", 7, nil}}, d.write("r", 7, "")); err != nil {
			t.Fatal(err)
		}
		const huge = fencing.Token(2000<<48 | 1)
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
			if err := g.RaiseClaim(t.Context(), sqlfence.SQLTx(tx), c.resource, c.claim); !errors.Is(err, c.want) {
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
			if err := g.DoClaim(t.Context(), resource, fencing.Claim{Name: "a", Token: 8}, d.write(resource, 8, "")); err != nil {
				t.Errorf("%s: the next holder: %v", resource, err)
			}
		}
	})
}

func TestRaiseInATransactionOfPgx(t *testing.T) {
	d := newDatabase(t, kinds[1])
	d.guard(t, nil)
	m, err := sqlfence.NewMarks(sqlfence.Postgres, &sqlfence.Options{Auditor: unheard})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), "host="+postgres.dir+" user=postgres dbname=postgres sslmode=disable search_path="+d.id)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, step := range []struct {
		token fencing.Token
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
			_, err = tx.Exec(t.Context(), "INSERT INTO history (resource, token, work) VALUES ('r', $1, '')", int64(step.token))
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

func TestMarksTakeNoOptionsOfTransactions(t *testing.T) {
	for _, opts := range []sqlfence.Options{{Retry: retry()}, {Isolation: sql.LevelSerializable}, {Transient: func(error) bool { return true }}} {
		if _, err := sqlfence.NewMarks(sqlfence.Postgres, &opts); !isArgument(err, "Options") {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	m, err := sqlfence.NewMarks(sqlfence.Postgres, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Raise(t.Context(), nil, "r", fencing.Token(5)); !isArgument(err, "tx") {
		t.Errorf("without a transaction: %v", err)
	}
}

// The trap: what was read before the guarded transaction is written in it. A mark
// that is raised at the acquisition shuts the older holder out before the newer
// one reads.
func TestRaiseAtAcquisitionKeepsAReadFromBeingOverwritten(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		d.exec(t, "INSERT INTO accounts (id, balance) VALUES (1, 0), (2, 0)")
		read := func(id int) int64 { return d.number(t, "SELECT balance FROM accounts WHERE id = ?", id) }
		increment := func(id int, token fencing.Token, seen int64) error {
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
				if err := g.Do(t.Context(), string(rune('0'+id)), fencing.Token(7), nothing); err != nil {
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
				t.Errorf("raised at acquisition: %v: %d increments were acknowledged, the counter is %d", raise, acknowledged, read(id))
			}
		}
	})
}
