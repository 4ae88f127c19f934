package httpfence_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// holder is a fencing.Holder whose state a test sets.
type holder struct {
	name  string
	token fencing.Token
	err   error // of Check
}

func (h *holder) Name() string             { return h.name }
func (h *holder) Token() fencing.Token     { return h.token }
func (h *holder) Check() error             { return h.err }
func (h *holder) Client() *clientv3.Client { return nil }
func (h *holder) IsOwner() clientv3.Cmp    { return clientv3.Cmp{} }

// nameless is a holder that is not Named.
type nameless struct{ h *holder }

func (n nameless) Token() fencing.Token     { return n.h.Token() }
func (n nameless) Check() error             { return n.h.Check() }
func (n nameless) Client() *clientv3.Client { return nil }
func (n nameless) IsOwner() clientv3.Cmp    { return clientv3.Cmp{} }

var (
	errLost      = errors.New("lost")
	errSuspended = holdfast.ErrSuspended
)

// journal is an auditor that remembers.
type journal struct {
	mu      sync.Mutex // protects records
	records []audit.Record
}

func (j *journal) Audit(_ context.Context, r audit.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = append(j.records, r)
}

func (j *journal) take() []audit.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	taken := j.records
	j.records = nil
	return taken
}
