package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// Account is a model of GORM.
type Account struct{ ID, Balance int64 }

// guide: gorm

// WithGORM runs work in a guarded transaction of the database that orm uses.
func WithGORM(
	ctx context.Context, g *sqlfence.Guard, resource string, lk fencing.Source, orm *gorm.DB, work func(*gorm.DB) error,
) error {
	return g.Do(ctx, resource, lk, func(ctx context.Context, tx *sql.Tx) error {
		inTx := orm.WithContext(ctx)
		inTx.Statement.ConnPool = tx
		return work(inTx)
	})
}

// guide: ent

// EntIn is a driver for ent.NewClient(ent.Driver(…)) whose client works in a transaction, of Guard.Do for example. The
// dialect is one of entgo.io/ent/dialect. What the client commits by itself is committed with the transaction.
func EntIn(tx *sql.Tx, name string) dialect.Driver {
	return entTx{entsql.NewDriver(name, entsql.Conn{ExecQuerier: tx})}
}

type entTx struct{ *entsql.Driver }

func (d entTx) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

func (d entTx) BeginTx(context.Context, *entsql.TxOptions) (dialect.Tx, error) {
	return dialect.NopTx(d), nil
}

// guide: end

var errLater = errors.New("a later statement fails")

// judgeORM withdraws by an ORM, with the tokens 7, 7, 5 and 8. The last one fails after its write.
func judgeORM(t *testing.T, d *database, withdraw func(lk fencing.Source, amount int64, then error) error) {
	t.Helper()
	d.exec(t, "INSERT INTO accounts (id, balance) VALUES (7, 100)")
	for _, c := range []struct {
		token holdfast.Token
		then  error
		want  error
	}{{7, nil, nil}, {7, nil, nil}, {5, nil, fencing.ErrStale}, {8, errLater, errLater}} {
		if err := withdraw(c.token, 10, c.then); !errors.Is(err, c.want) {
			t.Errorf("token %v: %v, want %v", c.token, err, c.want)
		}
	}
	var balance int64
	if err := d.db.QueryRow("SELECT balance FROM accounts WHERE id = 7").Scan(&balance); err != nil || balance != 80 {
		t.Errorf("the balance is %d, %v", balance, err)
	}
}

func TestGORMWritesInAGuardedTransaction(t *testing.T) {
	for _, k := range kinds {
		if k.dialect != sqlfence.Postgres {
			continue // GORM's own drivers of the others bring other drivers of the database
		}
		for name, cfg := range map[string]*gorm.Config{"plain": {}, "prepared": {PrepareStmt: true}} {
			t.Run(name, func(t *testing.T) {
				d := newDatabase(t, k)
				orm, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: d.db}), cfg)
				if err != nil {
					t.Fatal(err)
				}
				g := d.guard(t, nil)
				judgeORM(t, d, func(lk fencing.Source, amount int64, then error) error {
					return WithGORM(t.Context(), g, "accounts/7", lk, orm, func(orm *gorm.DB) error {
						var a Account
						if err := orm.First(&a, 7).Error; err != nil {
							return err
						}
						a.Balance -= amount
						if err := orm.Save(&a).Error; err != nil { // elsewhere GORM opens a transaction for that
							return err
						}
						return orm.Transaction(func(*gorm.DB) error { return then }) // a savepoint
					})
				})
			})
		}
	}
}

// What a client of ent does for client.Account.UpdateOneID(7).AddBalance(-10).Exec(ctx) is sqlgraph.UpdateNode.
func TestEntWritesInAGuardedTransaction(t *testing.T) {
	names := map[sqlfence.Dialect]string{
		sqlfence.Postgres: dialect.Postgres, sqlfence.MySQL: dialect.MySQL, sqlfence.SQLite: dialect.SQLite,
	}
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		judgeORM(t, d, func(lk fencing.Source, amount int64, then error) error {
			return g.Do(t.Context(), "accounts/7", lk, func(ctx context.Context, tx *sql.Tx) error {
				spec := sqlgraph.NewUpdateSpec("accounts", []string{"id", "balance"},
					sqlgraph.NewFieldSpec("id", field.TypeInt64))
				spec.Node.ID.Value = 7
				spec.AddField("balance", field.TypeInt64, -amount)
				spec.ScanValues = func(columns []string) ([]any, error) {
					return []any{new(sql.NullInt64), new(sql.NullInt64)}[:len(columns)], nil
				}
				spec.Assign = func([]string, []any) error { return nil }
				if err := sqlgraph.UpdateNode(ctx, EntIn(tx, names[d.dialect]), spec); err != nil {
					return err
				}
				return then
			})
		})
	})
}
