package sqlfence_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

// withServers stops the database servers before goleak checks.
type withServers struct{ *testing.M }

func (m withServers) Run() int {
	defer stopServers()
	return m.M.Run()
}

func TestMain(m *testing.M) {
	beChild() // does not return in a process that a test has started
	// GORM's cache of prepared statements cannot be closed.
	leak.MainBut(withServers{m}, "gorm.io/gorm/internal/lru.NewLRU[...].func1")
}

// holder is a fencing.Holder that needs no etcd.
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

func neverCalled(t *testing.T) func(context.Context, *sql.Tx) error {
	return func(context.Context, *sql.Tx) error {
		t.Error("fn was called")
		return nil
	}
}

// quiet is an auditor that drops its records.
var quiet = audit.Func(func(context.Context, audit.Record) {})

// gaveUp is a serialization failure, as drivers report it.
type gaveUp struct{}

func (gaveUp) Error() string    { return "could not serialize" }
func (gaveUp) SQLState() string { return "40001" }

func retry() *backoff.Policy { return &backoff.Policy{Max: 50 * time.Millisecond} }
