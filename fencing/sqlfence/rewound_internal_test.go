package sqlfence

import (
	"context"
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
)

// holder is a fencing.Holder that owns a key.
type holder struct {
	cli   *clientv3.Client
	key   string
	check error
}

func (h *holder) Token() holdfast.Token    { return 5 }
func (h *holder) Check() error             { return h.check }
func (h *holder) Name() string             { return "job" }
func (h *holder) Client() *clientv3.Client { return h.cli }

func (h *holder) Holding() []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(h.key), ">", 0)}
}

// Etcd is asked who holds: only the token of the present holder should have passed.
func TestMarkIsSaidToBeRewoundForAPresentHolderOnly(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		srv.Put("here", "")
		link, silent := srv.Link(), srv.Link()
		silent.Cut()
		below := &fencing.MarkError{Resource: "r", Claim: fencing.Claim{Name: "job", Token: 5}, Mark: 7}
		for name, c := range map[string]struct {
			source  fencing.Source
			rewound bool
		}{
			"a bare token":             {holdfast.Token(5), false},
			"a present holder":         {&holder{cli: link.Client(), key: "here"}, true},
			"one whose entry is gone":  {&holder{cli: link.Client(), key: "gone"}, false},
			"one that knows its loss":  {&holder{cli: link.Client(), key: "here", check: holdfast.ErrLost}, false},
			"one without a client":     {&holder{key: "here"}, false},
			"one whose etcd is silent": {&holder{cli: silent.Client(), key: "here"}, false},
		} {
			r := &request{claimant: claimant{source: c.source}}
			err := r.explain(context.Background(), below)
			if !errors.Is(err, fencing.ErrStale) || errors.Is(err, ErrRewound) != c.rewound {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestErrorOfARewoundMarkSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	for mark, advice := range map[holdfast.Token]string{
		3<<48 | 1000:                     "raise the epoch to 4 or more (etcdfence.BumpEpoch)",
		(fencing.MaxEpochStep-1)<<48 | 1: "(etcdfence.BumpEpoch)",
		fencing.MaxEpochStep<<48 | 1:     "Reset the mark",
	} {
		err := rewound(&fencing.MarkError{Resource: "r", Claim: fencing.Claim{Name: "job", Token: 5}, Mark: mark})
		text := err.Error()
		if !strings.Contains(text, advice) || strings.Contains(text, "Reset") == strings.Contains(text, "Bump") {
			t.Errorf("mark %v: %s", mark, text)
		}
	}
}
