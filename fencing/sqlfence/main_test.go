package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

// Tests with databases are in tests/sqlfence.
func TestMain(m *testing.M) { leak.Main(m) }

// holder is a fencing.Holder in a state that the test sets.
type holder struct {
	name  string
	token holdfast.Token
	err   error // of Check
}

func (h *holder) Name() string             { return h.name }
func (h *holder) Token() holdfast.Token    { return h.token }
func (h *holder) Check() error             { return h.err }
func (h *holder) Client() *clientv3.Client { return nil }
func (h *holder) Owned() []clientv3.Cmp    { return nil }

// unreachable is a database that fails the test when it is used.
type unreachable struct{ t *testing.T }

func (u unreachable) Driver() driver.Driver { return nil }

func (u unreachable) Connect(context.Context) (driver.Conn, error) {
	u.t.Error("the database was used")
	return nil, errors.New("unreachable")
}

func unreachableDB(t *testing.T) *sql.DB {
	db := sql.OpenDB(unreachable{t})
	t.Cleanup(func() { db.Close() })
	return db
}

func unreachableGuard(t *testing.T) *sqlfence.Guard {
	t.Helper()
	g, err := sqlfence.New(unreachableDB(t), sqlfence.Postgres, nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func neverCalled(t *testing.T) func(context.Context, *sql.Tx) error {
	return func(context.Context, *sql.Tx) error {
		t.Error("fn was called")
		return nil
	}
}

func isArgument(err error, argument string) bool {
	var e *holdfast.ArgumentError
	return errors.As(err, &e) && e.Argument == argument
}
