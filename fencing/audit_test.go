package fencing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
)

func TestLogHasOneAttributeForEachFieldThatIsSet(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		r    audit.Record
		want []string
	}{
		{audit.Record{Event: audit.Granted, At: at, Kind: "lock", Name: "job", Key: "k", Lease: 0xab, Token: 7, Holder: "h"},
			[]string{"level=DEBUG", `msg="holdfast: granted"`, "at=2026-01-02T03:04:05.000Z", "kind=lock", "name=job", "key=k", "lease=ab", "token=7", "holder=h"}},
		{audit.Record{Event: audit.Released, At: at, Held: time.Second}, []string{"level=DEBUG", "held=1s"}},
		{audit.Record{Event: audit.Lost, At: at, Err: errors.New("why")}, []string{"level=WARN", "error=why"}},
		{audit.Record{Event: audit.Refused, At: at, Resource: "r", Token: 5, Mark: 7}, []string{"level=WARN", "resource=r", "token=5", "mark=7"}},
		{audit.Record{Event: audit.Bumped, At: at, Detail: "epoch"}, []string{"level=WARN", "detail=epoch"}},
	} {
		b.Reset()
		audit.Tell(t.Context(), audit.Log(log), c.r)
		for _, want := range c.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q lacks %q", b.String(), want)
			}
		}
		if got, want := strings.Count(b.String(), "=")-1, len(c.want); c.r.Event != audit.Granted && got > want+4 { // time, level, msg, event, at
			t.Errorf("%q has more than was set", b.String())
		}
	}
}

func TestPanicInAnAuditorIsRecovered(t *testing.T) {
	var b bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	defer slog.SetDefault(old)
	audit.Tell(t.Context(), audit.Func(func(context.Context, audit.Record) { panic("boom") }),
		audit.Record{Event: audit.Lost, Name: "job", Token: 7})
	for _, want := range []string{"boom", "job", "audit_test.go", "token=7"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q lacks %q", b.String(), want)
		}
	}
	b.Reset()
	audit.Tell(t.Context(), nil, audit.Record{Event: audit.Lost, Name: "job"})
	if !strings.Contains(b.String(), "holdfast: lost") {
		t.Errorf("without an auditor slog's default gets %q", b.String())
	}
}

func TestRecordsAreWrittenUnderAContextThatHasEnded(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
	cancel()
	called := false
	audit.Tell(ctx, audit.Func(func(ctx context.Context, r audit.Record) {
		called = true
		if ctx.Err() != nil || ctx.Value(key{}) != "trace" || r.At.IsZero() {
			t.Errorf("context %v, record %+v", ctx.Err(), r)
		}
	}), audit.Record{Event: audit.Lost})
	if !called {
		t.Error("the record was lost")
	}
}

func TestOnlyWhatSpeaksAgainstAClaimIsARefusal(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refusal bool
		mark    fencing.Token
	}{
		"stale":       {fmt.Errorf("wrapped: %w", &fencing.MarkError{Resource: "r", Claim: claim(5), Mark: 7}), true, 7},
		"stale, SQL":  {fencing.ErrStale, true, 0},
		"other name":  {&fencing.OtherNameError{}, true, 0},
		"none":        {fencing.ErrNoToken, true, 0},
		"malformed":   {&fencing.ClaimError{}, true, 0},
		"full":        {fencing.ErrFull, false, 0},
		"context":     {context.Canceled, false, 0},
		"no error":    {nil, false, 0},
		"unreachable": {errors.New("unreachable"), false, 0},
	} {
		var j journal
		fence.AuditRefusal(t.Context(), &j, "r", claim(5), "peer", c.err)
		got := j.all()
		if (len(got) == 1) != c.refusal {
			t.Errorf("%s: %d records", name, len(got))
			continue
		}
		if c.refusal && (got[0].Event != audit.Refused || got[0].Resource != "r" || got[0].Name != "job" || got[0].Token != 5 || got[0].Mark != c.mark || got[0].Holder != "peer" || got[0].Err == nil) {
			t.Errorf("%s: %+v", name, got[0])
		}
	}
}

func ExampleLogAuditor() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindTime {
			return slog.Attr{} // the same output each time
		}
		return a
	}}))
	audit.Tell(context.Background(), audit.Log(log), audit.Record{
		Event: audit.Refused, Name: "billing/job-7", Resource: "ledger.csv", Token: 5, Mark: 7, Holder: "10.0.0.7:51332", Err: fencing.ErrStale,
	})
	// Output:
	// level=WARN msg="holdfast: refused" event=refused name=billing/job-7 token=5 holder=10.0.0.7:51332 resource=ledger.csv mark=7 error="fencing token is stale"
}
