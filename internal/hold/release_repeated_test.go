package hold_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// cancelNextRemoval has the next removal carried out and answered with Canceled, as a proxy does that ends. A client
// whose KV was replaced sends it once more, unnoticed.
func cancelNextRemoval(p *holdtest.Process) {
	done := false
	deletes := func(op *pb.RequestOp) bool { return op.GetRequestDeleteRange() != nil }
	p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
		r, isTxn := c.Request.(*pb.TxnRequest)
		if done || !isTxn || !slices.ContainsFunc(r.Success, deletes) {
			return etcdfake.Fate{}
		}
		done = true
		return etcdfake.Fate{LoseReply: true, Code: codes.Canceled}
	})
}

// The second copy of a removal finds no entry and no claim. It must not count as a loss: the work was done under the
// lock.
func TestRemovalThatTheClientHasRepeatedIsOfUnknownOutcomeAndNoLoss(t *testing.T) {
	for name, of := range map[string]func(*holdtest.Process) queue.Set{
		"a lock": func(p *holdtest.Process) queue.Set { return queue.Set{p.Queue("x")} },
		"a set":  func(p *holdtest.Process) queue.Set { return queue.Set{p.Queue("x"), p.Queue("y")} },
	} {
		// The removal of a lock for which a goroutine waits puts an entry, too: that tells what became of it.
		for _, waits := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := holdtest.StartReplaced(t, srv)
					records := make(chan audit.Record, 10)
					holds, err := hold.AcquireSet(t.Context(), of(p), hold.Request{
						Auditor: audit.Func(func(_ context.Context, r audit.Record) {
							if r.Event != audit.Granted {
								records <- r
							}
						}),
					})
					if err != nil {
						t.Fatal(err)
					}
					next := make(chan error, 1)
					if waits { // a goroutine of the same session: the removal hands the name off to it
						go func() {
							h, err := hold.AcquireSet(kit.Within(t, time.Minute), of(p), hold.Request{})
							if err == nil {
								err = h[0].Release(t.Context())
							}
							next <- err
						}()
						time.Sleep(time.Second)
					}
					cancelNextRemoval(p)
					err = holds[0].Release(kit.Within(t, time.Minute))
					isUnknown := errors.Is(err, holdfast.ErrOutcomeUnknown) && !errors.Is(err, holdfast.ErrLost) &&
						strings.Contains(err.Error(), "the removal twice") &&
						strings.Contains(err.Error(), "if it did not, another client had deleted the entry")
					if told := waits && len(holds) == 1; told && err != nil || !told && !isUnknown {
						t.Errorf("Release: %v", err)
					}
					if err := holds[0].Check(); !errors.Is(err, holdfast.ErrReleased) {
						t.Errorf("Check: %v", err)
					}
					if r := <-records; r.Event != audit.Released {
						t.Errorf("the audit tells %v: %v", r.Event, r.Err)
					}
					if waits {
						if err := <-next; err != nil {
							t.Errorf("the next goroutine: %v", err)
						}
					}
				})
			})
		}
	}
}

// The claim that stands alone tells that no removal of the session was carried out, whatever the client repeats.
func TestEntryThatWasDeletedByHandIsALossWhateverTheClientRepeats(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Queue("x"))
		srv.Delete(h.Key())
		cancelNextRemoval(p)
		if err := h.Release(kit.Within(t, time.Minute)); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
	})
}
