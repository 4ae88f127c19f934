package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
)

func TestLogHasOneAttributeForEachFieldThatIsSet(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const always = 3 // time, level, msg
	for _, c := range []struct {
		r     audit.Record
		level string
		want  []string
	}{
		{audit.Record{Event: audit.Granted, At: at, Kind: holdfast.KindLock, Name: "job", Key: "k", Lease: 0xab, Token: 7,
			Holder: "h"}, "DEBUG", []string{"kind=lock", "name=job", "key=k", "lease=ab", "token=7", "holder=h"}},
		{audit.Record{Event: audit.Released, At: at, Held: time.Second}, "DEBUG", []string{"held=1s"}},
		{audit.Record{Event: audit.Lost, At: at, Err: errors.New("why")}, "WARN", []string{"error=why"}},
		{audit.Record{Event: audit.Lost, At: at, Kind: holdfast.KindLock, Name: "job", Err: &holdfast.LostError{
			Kind: holdfast.KindLock, Name: "job", Cause: holdfast.CauseExpired, Since: time.Minute, Err: errors.New("refused"),
		}}, "WARN", []string{"kind=lock", "name=job", "cause=expired", "since_last_renewal=1m0s", "error=refused"}},
		{audit.Record{Event: audit.Lost, At: at, Err: &holdfast.LostError{Cause: holdfast.CauseClosed}},
			"DEBUG", []string{`cause="session closed"`}},
		{audit.Record{Event: audit.Refused, At: at, Resource: "r", Token: 5, Mark: 7},
			"WARN", []string{"resource=r", "token=5", "mark=7"}},
		{audit.Record{Event: audit.Bumped, At: at, Holder: "h", Detail: "epoch"},
			"WARN", []string{"holder=h", "detail=epoch"}},
	} {
		b.Reset()
		audit.Tell(t.Context(), audit.Log(log), c.r)
		mustContain(t, b.String(), c.want...)
		mustContain(t, b.String(), "level="+c.level, `msg="holdfast: `+string(c.r.Event)+`"`)
		if got := strings.Count(b.String(), "="); got != always+len(c.want) {
			t.Errorf("%q has %d attributes, want %d", b.String(), got, always+len(c.want))
		}
	}
}

func TestLogOfALossBeginsWithKindAndName(t *testing.T) {
	var b bytes.Buffer
	lost := &holdfast.LostError{Kind: holdfast.KindLock, Name: "job", Token: 7, Cause: holdfast.CauseRevoked}
	audit.Tell(t.Context(), audit.Log(slog.New(slog.NewTextHandler(&b, nil))), audit.Record{
		Event: audit.Lost, Kind: holdfast.KindLock, Name: "job", Token: 7, Key: "k", Lease: 0xab, Holder: "h", Err: lost,
	})
	const want = `msg="holdfast: lost" kind=lock name=job token=7 cause=revoked lease=ab key=k`
	mustContain(t, b.String(), want)
	if strings.Contains(b.String(), "acquire again") {
		t.Errorf("advice in the log: %s", b.String())
	}
}

// A token is a string in JSON, and that of zero is an error by itself.
func TestRecordInJSONHasItsTokensAsTextOrNone(t *testing.T) {
	for _, c := range []struct {
		record     audit.Record
		has, lacks string
	}{
		{audit.Record{Event: audit.Refused, Token: 1<<53 + 1, Mark: 1 << 60},
			`"Token":"9007199254740993"`, `"Token":9`},
		{audit.Record{Event: audit.Bumped}, `"Event":"bumped"`, "Token"},
		{audit.Record{Event: audit.Bumped}, `"Event":"bumped"`, "Mark"},
	} {
		data, err := json.Marshal(c.record)
		if err != nil || !strings.Contains(string(data), c.has) || strings.Contains(string(data), c.lacks) {
			t.Errorf("%v in JSON: %s, %v", c.record.Event, data, err)
		}
	}
}
