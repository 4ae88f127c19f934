package fencing_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

type journal = fencingtest.Journal

var (
	claim    = fencingtest.Claim
	newToken = fencingtest.NewToken
	do       = fencingtest.Do
	mustSay  = fencingtest.MustSay
)

func TestMain(m *testing.M) { leak.Main(m) }

// marks returns marks in an etcd of their own.
func marks(t *testing.T) *etcdfence.Marks {
	t.Helper()
	srv := etcdfake.New(etcdfake.Options{})
	t.Cleanup(srv.Close)
	m, err := etcdfence.NewMarks(srv.Client(t), etcdfence.MarksOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// holder is a fencing.Holder.
type holder struct {
	name  string
	token holdfast.Token
	check func() error // nil: nil
}

func (h *holder) Name() string             { return h.name }
func (h *holder) Token() holdfast.Token    { return h.token }
func (h *holder) Client() *clientv3.Client { return nil }
func (h *holder) Holding() []clientv3.Cmp  { return nil }

func (h *holder) Check() error {
	if h.check == nil {
		return nil
	}
	return h.check()
}
