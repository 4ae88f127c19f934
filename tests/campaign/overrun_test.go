//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// lostHold returns the record of a hold that Check has confirmed until 12 s. Its entry has an administrator's notice
// since 11 s, if that is given, and was deleted at 12.05 s.
func lostHold(notice layout.Notice) (*recorded, *oracle.Hold) {
	rec := heldFrom(10 * time.Second)
	h := rec.Record.Holds[0]
	if notice.Given() {
		v := layout.Value{Identity: layout.Identity{Owner: h.Who}, Queued: time.Now(), Notice: notice}
		put := rec.Record.Changes[0].Kv
		noticed := oracle.Change{Revision: put.CreateRevision + 1, After: 11 * time.Second, Before: 11 * time.Second,
			Prev: put, Kv: &mvccpb.KeyValue{Key: put.Key, Value: []byte(v.Encode()), Lease: put.Lease,
				CreateRevision: put.CreateRevision, ModRevision: put.CreateRevision + 1}}
		gone := rec.Record.Changes[1]
		gone.Revision++
		rec.Record.Changes = []oracle.Change{rec.Record.Changes[0], noticed, gone}
	}
	rec.Returned = map[string]time.Duration{}
	return rec, h
}

func of(h *oracle.Hold) string { return nameOf(h.Parts[0].Prefix, h.Token) }

func TestOverrunNeedsAReason(t *testing.T) {
	kick := layout.Notice{By: "a", Reason: "b", At: time.Now()}
	removal := kick
	removal.Removed = true
	const ms, s = time.Millisecond, time.Second
	for name, c := range map[string]struct {
		notice   layout.Notice
		cause    holdfast.Cause
		at       time.Duration
		returned time.Duration
		stopped  bool // until it was called
		want     string
	}{
		"expired":           {cause: holdfast.CauseExpired, at: 12100 * ms},
		"within the grace":  {cause: holdfast.CauseExpired, at: 12099 * ms, want: "Check had returned nil"},
		"while it was held": {cause: holdfast.CauseExpired, at: 11 * s, want: "Check had returned nil"},
		"deleted":           {cause: holdfast.CauseEntryDeleted, at: 13 * s},
		"deleted later":     {cause: holdfast.CauseEntryDeleted, at: 12040 * ms, want: "no reason"},
		"revoked later":     {cause: holdfast.CauseRevoked, at: 12040 * ms, want: "Check had returned nil"},
		"not removed":       {cause: holdfast.CauseRemoved, at: 13 * s, want: "no reason"},
		"removed":           {notice: removal, cause: holdfast.CauseRemoved, at: 13 * s},
		"not kicked":        {cause: holdfast.CauseKicked, at: 50 * s, want: "no reason"},
		"kicked long ago":   {notice: kick, cause: holdfast.CauseKicked, at: 43 * s},
		"kicked":            {notice: kick, cause: holdfast.CauseKicked, at: 42 * s, want: "Check had returned nil"},
		"not drained":       {cause: holdfast.CauseNotDrained, at: 43 * s},
		"drained":           {cause: holdfast.CauseNotDrained, at: 41 * s, want: "Check had returned nil"},
		"closed":            {cause: holdfast.CauseClosed, at: 60 * s, want: "no reason"},
		"returned":          {cause: holdfast.CauseExpired, at: 15 * s, returned: 13 * s, want: "had returned"},
		"returned just now": {cause: holdfast.CauseExpired, at: 13 * s, returned: 12500 * ms},
		"stopped meanwhile": {cause: holdfast.CauseExpired, at: 15 * s, returned: 13 * s, stopped: true},
	} {
		t.Run(name, func(t *testing.T) {
			rec, h := lostHold(c.notice)
			if c.returned != 0 {
				rec.Returned[of(h)] = c.returned
			}
			if c.stopped {
				rec.Faults = []fault{{stopsProcess, oracle.Fault{Process: h.Process, From: c.returned, To: c.at}}}
			}
			rec.Overruns = []overrun{{Of: of(h), Cause: c.cause, At: c.at}}
			got := strings.Join(rec.judgeOverruns(), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestOverrunIsToldOnceAndOfAHold(t *testing.T) {
	rec, h := lostHold(layout.Notice{})
	once := overrun{Of: of(h), Cause: holdfast.CauseExpired, At: 13 * time.Second}
	another := once
	another.Of = nameOf(h.Parts[0].Prefix, h.Token+1)
	rec.Overruns = []overrun{once, once, another}
	got := rec.judge().Violations
	if len(got) != 2 || !strings.Contains(got[0], "called before") || !strings.Contains(got[1], "no worker held") {
		t.Errorf("%q", got)
	}
}

// One transaction may put the entries of many waiters of a session.
func TestOverrunsOfTwoHoldsWithOneToken(t *testing.T) {
	rec, h := lostHold(layout.Notice{})
	other := *h
	other.Parts = []oracle.Part{oracle.LockPart("another", false)}
	rec.Record.Holds = append(rec.Record.Holds, &other)
	for _, h := range rec.Record.Holds {
		rec.Overruns = append(rec.Overruns, overrun{Of: of(h), Cause: holdfast.CauseExpired, At: 13 * time.Second})
	}
	if got := rec.judgeOverruns(); len(got) > 0 {
		t.Errorf("%q", got)
	}
	rec.Overstays = []overrun{{Of: of(&other), Cause: holdfast.CauseExpired, At: 20 * time.Second, For: 5 * time.Second}}
	rec.Overruns = rec.Overruns[:1]
	if got := rec.judgeOverruns(); len(got) != 1 || !strings.Contains(got[0], "was not called for holdfast/lock/another") {
		t.Errorf("%q", got)
	}
}

func TestOverrunThatIsMissingIsAViolation(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for name, c := range map[string]struct {
		cause   holdfast.Cause
		stayed  time.Duration
		called  bool
		missing bool
	}{
		"not told":            {cause: holdfast.CauseExpired, stayed: 1500 * ms, missing: true},
		"told":                {cause: holdfast.CauseExpired, stayed: 1500 * ms, called: true},
		"returned in time":    {cause: holdfast.CauseExpired, stayed: 1480 * ms},
		"revoked":             {cause: holdfast.CauseRevoked, stayed: 2 * s, missing: true},
		"removed":             {cause: holdfast.CauseRemoved, stayed: 2 * s, missing: true},
		"kicked":              {cause: holdfast.CauseKicked, stayed: 31 * s},
		"kicked long ago":     {cause: holdfast.CauseKicked, stayed: 32 * s, missing: true},
		"the session's Close": {cause: holdfast.CauseClosed, stayed: 60 * s},
		"released":            {stayed: 60 * s},
	} {
		t.Run(name, func(t *testing.T) {
			rec, h := lostHold(layout.Notice{})
			rec.Overstays = []overrun{{Of: of(h), Cause: c.cause, At: 80 * s, For: c.stayed}}
			if c.called {
				rec.Overruns = []overrun{{Of: of(h), Cause: c.cause, At: 13 * s}}
			}
			got := rec.judge().Violations
			if missing := len(got) == 1 && strings.Contains(got[0], "was not called"); missing != c.missing || len(got) > 1 {
				t.Errorf("%q", got)
			}
		})
	}
}
