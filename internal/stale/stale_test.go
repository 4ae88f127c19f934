package stale_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/stale"
)

func TestMain(m *testing.M) { leak.Main(m) }

type hold struct{ ended int }

func (h *hold) EndStale()             { h.ended++ }
func (h *hold) Owned() []clientv3.Cmp { return make([]clientv3.Cmp, 2) }

type hook = stale.Hook

// lock embeds a hook as locks and terms do.
type lock struct{ hook }

func TestRefusedWriteEndsTheHoldOfAHolderWithAHook(t *testing.T) {
	h := new(hold)
	stale.Refused(&lock{stale.NewHook(h)})
	if h.ended != 1 {
		t.Errorf("the hold was ended %d times, want once", h.ended)
	}
	if n := len(stale.Owned(&lock{stale.NewHook(h)})); n != 2 {
		t.Errorf("%d entries of the hold are compared, want both", n)
	}
	stale.Refused(new(struct{})) // a user's holder: nothing happens
	if cmps := stale.Owned(new(struct{})); cmps != nil {
		t.Errorf("%v are compared for a user's holder", cmps)
	}
}
