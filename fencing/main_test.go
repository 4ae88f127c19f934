package fencing_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadlines is a KV that notes how long a request may take, and fails.
type deadlines struct {
	clientv3.KV
	left time.Duration
}

func (d *deadlines) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if end, ok := ctx.Deadline(); ok {
		d.left = time.Until(end)
	}
	return nil, backoff.Final(errors.New("no"))
}

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

func (j *journal) all() []audit.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]audit.Record(nil), j.records...)
}
