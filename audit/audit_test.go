package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/audit"
)

// logToBuffer replaces slog's default logger until the test ends.
func logToBuffer(t *testing.T) *bytes.Buffer {
	t.Helper()
	b := new(bytes.Buffer)
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(b, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	return b
}

func mustContain(t *testing.T, log string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(log, part) {
			t.Errorf("%q lacks %q", log, part)
		}
	}
}

func TestPanicInAnAuditorIsRecoveredAndLogged(t *testing.T) {
	log := logToBuffer(t)
	audit.Tell(t.Context(), audit.Func(func(context.Context, audit.Record) { panic("boom") }),
		audit.Record{Event: audit.Lost, Name: "job", Token: 7})
	mustContain(t, log.String(), "boom", "job", "audit_test.go", "token=7")
}

func TestWithoutAnAuditorTheDefaultLoggerIsUsed(t *testing.T) {
	log := logToBuffer(t)
	audit.Tell(t.Context(), nil, audit.Record{Event: audit.Lost, Name: "job"})
	mustContain(t, log.String(), "holdfast: lost")
}

func TestRecordIsWrittenUnderACanceledContext(t *testing.T) {
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
		t.Error("the record was dropped")
	}
}

func TestOperatorsEventsNameThisProcess(t *testing.T) {
	pid := fmt.Sprintf("pid %d", os.Getpid())
	for event, named := range map[audit.Event]bool{
		audit.Bumped: true, audit.Reset: true, audit.Granted: false, audit.Lost: false, audit.Refused: false,
	} {
		audit.Tell(t.Context(), audit.Func(func(_ context.Context, r audit.Record) {
			if strings.Contains(r.Holder, pid) != named {
				t.Errorf("%s: holder is %q", event, r.Holder)
			}
		}), audit.Record{Event: event})
	}
}

func ExampleLog() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTimes}))
	audit.Tell(context.Background(), audit.Log(log), audit.Record{
		Event: audit.Refused, Name: "job", Resource: "ledger.csv", Token: 5, Mark: 7,
		Err: errors.New("token is stale"),
	})
	// Output:
	// level=WARN msg="holdfast: refused" name=job resource=ledger.csv token=5 mark=7 error="token is stale"
}

// withoutTimes makes the output the same each time.
func withoutTimes(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindTime {
		return slog.Attr{}
	}
	return a
}
