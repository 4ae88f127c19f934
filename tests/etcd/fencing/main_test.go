package fencing_test

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

var (
	do      = fencingtest.Do
	mustSay = fencingtest.MustSay
)

func TestMain(m *testing.M) { leak.Main(m) }

// quiet is an auditor that drops its records.
var quiet = audit.Func(func(context.Context, audit.Record) {})

func claim(token int64) fencing.Claim {
	return fencing.Claim{Name: "job", Token: holdfast.Token(token)}
}

// holder is a fencing.Holder whose entry is a key.
type holder struct {
	cli   *clientv3.Client
	entry string
	token holdfast.Token
}

func (h *holder) Name() string             { return "job" }
func (h *holder) Token() holdfast.Token    { return h.token }
func (h *holder) Client() *clientv3.Client { return h.cli }
func (h *holder) Check() error             { return nil }

func (h *holder) Owned() []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(h.entry), "=", h.token.Revision())}
}

const entry = "lock/job/@/1"
