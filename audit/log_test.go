package audit_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/audit"
)

func TestLogHasOneAttributeForEachFieldThatIsSet(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const always = 5 // time, level, msg, event, at
	for _, c := range []struct {
		r     audit.Record
		level string
		want  []string
	}{
		{audit.Record{Event: audit.Granted, At: at, Kind: "lock", Name: "job", Key: "k", Lease: 0xab, Token: 7, Holder: "h"},
			"DEBUG", []string{"kind=lock", "name=job", "key=k", "lease=ab", "token=7", "holder=h"}},
		{audit.Record{Event: audit.Released, At: at, Held: time.Second}, "DEBUG", []string{"held=1s"}},
		{audit.Record{Event: audit.Lost, At: at, Err: errors.New("why")}, "WARN", []string{"error=why"}},
		{audit.Record{Event: audit.Refused, At: at, Resource: "r", Token: 5, Mark: 7},
			"WARN", []string{"resource=r", "token=5", "mark=7"}},
		{audit.Record{Event: audit.Bumped, At: at, Holder: "h", Detail: "epoch"},
			"WARN", []string{"holder=h", "detail=epoch"}},
	} {
		b.Reset()
		audit.Tell(t.Context(), audit.Log(log), c.r)
		mustContain(t, b.String(), c.want...)
		mustContain(t, b.String(), "level="+c.level, "at=2026-01-02T03:04:05.000Z", `msg="holdfast: `+string(c.r.Event)+`"`)
		if got := strings.Count(b.String(), "="); got != always+len(c.want) {
			t.Errorf("%q has %d attributes, want %d", b.String(), got, always+len(c.want))
		}
	}
}
