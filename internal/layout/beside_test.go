package layout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/view"
)

func TestLimitIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"3": 3, "1024": 1024, "": 0, "0": 0, "-1": 0, "1025": 0, "x": 0,
		"03": 0, "+3": 0, // a put compares the text
		"3 5": 0, // of format 1, which knows no turns: beside it the limit would not hold
	} {
		l, ok := LimitIn(&mvccpb.KeyValue{Value: []byte(text), ModRevision: 7})
		if l != (Limit{want, 7}) || ok != (want != 0) || ok && l.String() != text {
			t.Errorf("%q is read as %+v, %v", text, l, ok)
		}
	}
}

// Clients of format 1 read two numbers, and refuse everything else.
func TestLimitIsRefusedByClientsOfFormat1(t *testing.T) {
	t.Parallel()
	permits, high, _ := strings.Cut(Limit{Permits: 3}.String(), " ")
	if permits != "3" || weightIn(high) != 0 {
		t.Errorf("read as %q and %q", permits, high)
	}
}

func TestRunIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	run := view.Run{Slot: "2026-02-03", At: when, Due: when.Add(time.Hour), Token: 8, Owner: "o", Host: "h", PID: 7}
	text, err := EncodeRun(run)
	if got, ok := RunIn(&mvccpb.KeyValue{Value: []byte(text)}); err != nil || !ok || got != run {
		t.Errorf("%s is read as %+v, %v; %v", text, got, ok, err)
	}
	for _, text := range []string{"", "x", `{"v":0,"at":"2026-02-03T04:05:06Z","token":1}`, `{"v":2,"token":1}`} {
		if got, ok := RunIn(&mvccpb.KeyValue{Value: []byte(text)}); ok {
			t.Errorf("%s is read as %+v", text, got)
		}
	}
}

func TestRunIsReadIfItHasOurForm(t *testing.T) {
	t.Parallel()
	value := func(v int, at, slot string) string {
		return fmt.Sprintf(`{"v":%d,"at":%q,"slot":%q,"token":"3"}`, v, at, slot)
	}
	const at = "2026-02-03T04:05:06.007Z"
	for name, c := range map[string]struct {
		value string
		want  bool
	}{
		"ours":                  {value(format, at, "monday"), true},
		"of a later version":    {value(format+1, at, ""), true},
		"with the longest slot": {value(format, at, strings.Repeat("x", MaxText)), true},
		"with a slot too long":  {value(format, at, strings.Repeat("x", MaxText+1)), false},
		"of an older version":   {value(format-1, at, "monday"), false},
		"of no version":         {value(0, at, "monday"), false},
		"of an impossible time": {value(format, "9999-12-31T23:59:59Z", "monday"), false},
		"of no time":            {value(format, "0001-01-01T00:00:00Z", "monday"), false},
		"no JSON":               {"monday", false},
		"far too long":          {value(format, at, "monday") + strings.Repeat(" ", maxValue), false},
	} {
		if run, ok := RunIn(&mvccpb.KeyValue{Value: []byte(c.value)}); ok != c.want || run.Known() != c.want {
			t.Errorf("%s: %v, %+v", name, ok, run)
		}
	}
}
