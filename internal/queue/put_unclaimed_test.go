package queue

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// refuseClaims has etcd refuse what touches the claims of foreign prefixes. It returns how many requests were refused.
func refuseClaims(p *process) *int {
	refused := new(int)
	p.KV.Refuse(func(ops []clientv3.Op) error {
		if slices.ContainsFunc(ops, func(op clientv3.Op) bool {
			return strings.HasPrefix(string(op.KeyBytes()), "holdfast/claim/")
		}) {
			*refused++
			return rpctypes.ErrPermissionDenied
		}
		return nil
	})
	return refused
}

// A session without the right to the claims of a prefix learns it once: no later put or look asks for them.
func TestPrefixWithoutTheRightToItsClaimsCostsOneRefusal(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q, refused := At(p.Host, holdfast.KindLock, "theirs"), refuseClaims(p)
		mustHandOff(t, mustAcquire(t, q))
		if *refused != 1 {
			t.Fatalf("%d were refused: this tests nothing", *refused)
		}
		p.Plan(nil)
		mustHandOff(t, mustAcquire(t, q))
		if sent := p.Counts(); *refused != 1 || sent["enqueue"] != 1 {
			t.Errorf("%d were refused; then sent %v", *refused, sent)
		}
		ahead := kit.JoinAs(t, srv, "theirs/", func(clientv3.LeaseID) string { return "ahead" })
		done := acquireLater(kit.Within(t, time.Minute), q)
		kit.Queued(t, srv, "theirs/", 2)
		ahead.Release()
		mustHandOff(t, <-done)
		if *refused != 1 {
			t.Errorf("%d were refused", *refused)
		}
	})
}

// etcd refuses a put for another reason. The next one has its claim, or a crash would cost no lock delay.
func TestClaimIsDroppedOnlyForWantOfTheRight(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.PlanOne("enqueue", etcdfake.Fate{LoseRequest: true, Code: codes.Unavailable})
		g := mustAcquire(t, At(p.Host, holdfast.KindLock, "theirs"))
		if n := p.Counts()["enqueue"]; n < 2 || g.Claim == "" || len(srv.Keys(g.Claim)) != 1 {
			t.Errorf("%d puts; claim %q: %v", n, g.Claim, srv.Keys(g.Claim))
		}
		mustHandOff(t, g)
	})
}

// There is no claim that could say who has deleted the entry.
func TestRemovalOfAnEntryWithoutAClaimAsksForNone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := startReplaced(t, srv)
		q := At(p.Host, holdfast.KindLock, "theirs")
		q.shared.noteUnclaimed(q.At)
		g := mustAcquire(t, q)
		p.Plan(nil)
		srv.Delete(g.Key)
		if err := g.HandOff(); !errors.Is(err, ErrRepeated) || p.Counts()["claim"] != 0 {
			t.Errorf("HandOff: %v; sent %v", err, p.Counts())
		}
	})
}
