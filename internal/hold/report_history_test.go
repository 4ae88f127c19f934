package hold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/holdtest"
	"github.com/holdfast-go/holdfast/internal/layout"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// While the holder is cut off, an administrator writes to its entry, which is gone when the holder is back. The record
// says why, by what etcd's history tells, and does not wait for more than that.
func TestRecordOfALossSaysWhatTheHistoryTells(t *testing.T) {
	kick, remove := &layout.Notice{By: "ops", Reason: "deploy"}, &layout.Notice{By: "ops", Reason: "deploy", Removed: true}
	for name, c := range map[string]struct {
		first, notice *layout.Notice
		silent        bool // etcd does not tell its history
		cause         holdfast.Cause
	}{
		"deleted":                  {nil, nil, false, holdfast.CauseEntryDeleted},
		"kicked, and deleted":      {nil, kick, false, holdfast.CauseEntryDeleted},
		"kicked, and then removed": {kick, remove, false, holdfast.CauseRemoved},
		"removed":                  {nil, remove, false, holdfast.CauseRemoved},
		"removed, and not told":    {nil, remove, true, holdfast.CauseEntryDeleted},
		"deleted, and not told":    {nil, nil, true, holdfast.CauseEntryDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				type recorded struct {
					audit.Record
					at time.Time
				}
				records := make(chan recorded, 1)
				h := holdtest.MustAcquireAs(t, p.Queue("x"),
					hold.Request{Auditor: audit.Func(func(_ context.Context, r audit.Record) {
						if r.Event == audit.Lost {
							records <- recorded{r, time.Now()}
						}
					})})
				time.Sleep(3 * time.Second) // the entry says since when it is held
				p.PlanAll("poll", holdtest.Silence)
				time.Sleep(time.Second)
				for _, notice := range []*layout.Notice{c.first, c.notice} {
					if notice != nil {
						holdtest.Notify(t, srv, srv.Keys(h.Key())[0], *notice)
					}
				}
				srv.Delete(h.Key())
				if p.Plan(nil); c.silent {
					p.PlanAll("watch", holdtest.Silence)
				}
				<-h.Done()
				ended := time.Now()
				r := <-records
				var lost *holdfast.LostError
				if !errors.As(r.Err, &lost) || lost.Cause != c.cause {
					t.Errorf("recorded %v, want cause %v", r.Err, c.cause)
				}
				most := hold.HistoryWait / 2
				if c.silent {
					most = hold.HistoryWait + 10*kit.OneWay
				}
				if took := r.at.Sub(ended); took > most {
					t.Errorf("recorded after %v, want %v at most", took, most)
				}
			})
		})
	}
}
