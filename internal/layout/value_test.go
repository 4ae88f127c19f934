package layout

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var when = time.Date(2026, 2, 3, 4, 5, 6, 7_000_000, time.UTC)

func TestValueSurvivesEncoding(t *testing.T) {
	t.Parallel()
	for what, data := range map[string]string{
		"nothing": "", "an address": "https://10.0.0.1:8080/?a=1&b=<2>", "JSON": `{"v":2,"queued_at":"x"}`,
		"lines":     "a\n\tb\r\n",
		"not UTF-8": "a\xffb", "control characters": "\x00\x01\x7f", "a separator": "\u2028",
		"the largest":                     strings.Repeat("\"", MaxData),
		"the largest, bytes":              strings.Repeat("\xff", MaxData),
		"the largest, control characters": strings.Repeat("\x00", MaxData),
	} {
		v := Value{Identity: Identity{Owner: "o", Host: "h", PID: 7}, Mode: "exclusive", Queued: when,
			Held: when.Add(time.Second), Data: data}
		got, ok := DecodeValue([]byte(v.Encode()))
		if !ok || got != v {
			t.Errorf("%s: %v, %.100v", what, ok, got)
		}
		if n := len(v.Encode()); n > maxValue {
			t.Errorf("%s: %d bytes", what, n)
		}
	}
}

// The format is documented in docs/elections.md, for readers without this library.
func TestValueIsEncodedAsDocumented(t *testing.T) {
	t.Parallel()
	v := Value{Identity: Identity{Owner: "billing-7", Host: "db-1", PID: 4711}, Mode: "exclusive",
		Queued: when.In(time.FixedZone("", 3600))}
	want := `{"v":2,"owner":"billing-7","host":"db-1","pid":4711,` +
		`"mode":"exclusive","queued_at":"2026-02-03T04:05:06.007Z"}`
	if got := v.Encode(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	v = Value{Identity: Identity{PID: 1}, Queued: when, Held: when.Add(1500 * time.Millisecond), Data: "<node-1>"}
	want = `{"v":2,"pid":1,"queued_at":"2026-02-03T04:05:06.007Z",` +
		`"held_since":"2026-02-03T04:05:07.507Z","value":"<node-1>"}`
	if got := v.Encode(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	v = Value{Queued: when, Data: "\xff\x00"}
	if got, want := v.Encode(), `{"v":2,"queued_at":"2026-02-03T04:05:06.007Z","value_base64":"/wA="}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestValueOfAnotherFormIsNotDecoded(t *testing.T) {
	t.Parallel()
	for what, raw := range map[string]string{
		"empty, of etcd's own locks":    "",
		"a candidate's data":            "node-1",
		"JSON of a candidate":           `{"addr":"10.0.0.1"}`,
		"JSON with a number of its own": `{"v":2,"addr":"10.0.0.1"}`,
		"a lock's, without a format number": `{"owner":"me","host":"h","pid":3,"mode":"exclusive",` +
			`"since":"2026-02-03T04:05:06.007Z"}`,
		"a session key's":    `{"v":2,"owner":"me","host":"h","pid":3}`,
		"format 0":           `{"v":0,"queued_at":"2026-02-03T04:05:06Z"}`,
		"an impossible year": `{"v":2,"queued_at":"9999-12-31T23:59:59-12:00"}`,
		"the last year":      `{"v":2,"queued_at":"9999-06-30T00:00:00Z"}`,
		"the year 0":         `{"v":2,"queued_at":"0000-06-30T00:00:00Z"}`,
		"a list":             `[{"v":2}]`,
		"truncated":          Value{Queued: when}.Encode()[:20],
		"an owner that is too long": `{"v":2,"queued_at":"2026-02-03T04:05:06Z","owner":"` +
			strings.Repeat("x", MaxText+1) + `"}`,
		"data that is too long": `{"v":2,"queued_at":"2026-02-03T04:05:06Z","value":"` +
			strings.Repeat("x", MaxData+1) + `"}`,
		"far too long": `{"v":2,"queued_at":"2026-02-03T04:05:06Z"` + strings.Repeat(" ", maxValue) + `}`,
	} {
		if v, ok := DecodeValue([]byte(raw)); ok || v != (Value{}) {
			t.Errorf("%s: %v, %v", what, v, ok)
		}
	}
	later := `{"v":3,"queued_at":"2026-02-03T04:05:06.007Z","pid":3,"something":{"new":[1]}}`
	if v, ok := DecodeValue([]byte(later)); !ok || v != (Value{Identity: Identity{PID: 3}, Queued: when}) {
		t.Errorf("of a later version: %v, %v", v, ok)
	}
}

func TestValueIsBoundedWhenItIsEncoded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", MaxText)
	v, ok := DecodeValue([]byte(Value{Identity: Identity{Owner: "x" + long, Host: long}, Queued: when}.Encode()))
	if !ok || v.Host != long[:MaxText] || v.Owner != "x"+long[:MaxText-2] {
		t.Errorf("%v: owner of %d bytes, host of %d", ok, len(v.Owner), len(v.Host))
	}
}

func TestHolderIsToldApartOnOneLine(t *testing.T) {
	t.Parallel()
	v := Value{Identity: Identity{Owner: "a\nb", Host: "db-1", PID: 4711}, Queued: when}
	if got, want := v.Holder(), `owner "a\nb", host "db-1", pid 4711`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func FuzzDecodeValue(f *testing.F) {
	f.Add([]byte(Value{Identity: Identity{Owner: "o", Host: "h", PID: 7}, Queued: when, Held: when,
		Data: "d"}.Encode()))
	f.Add([]byte(Value{Queued: when, Data: "\xff"}.Encode()))
	f.Add([]byte(`{"v":2,"queued_at":"0001-01-01T00:00:00+01:00"}`))
	f.Add([]byte(`{"v":2,"queued_at":"2026-02-03T04:05:06.0071Z","value":"a","value_base64":"/w=="}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, ok := DecodeValue(b)
		if !ok {
			return
		}
		enc := v.Encode()
		again, ok := DecodeValue([]byte(enc))
		if !ok || again != v || len(enc) > maxValue {
			t.Errorf("%q reads as %+v, which is written as %q and reads as %+v", b, v, enc, again)
		}
	})
}

func TestNoticeSurvivesEncodingAndIsBounded(t *testing.T) {
	t.Parallel()
	n := Notice{By: "jane", Reason: "a\nb", At: when, Removed: true, Until: when.Add(time.Minute)}
	v := Value{Queued: when, ToldWithin: 3 * time.Second, Notice: n}
	if got, ok := DecodeValue([]byte(v.Encode())); !ok || got != v {
		t.Errorf("%v, %+v", ok, got)
	}
	v.Notice.Reason, v.Notice.By = strings.Repeat("\x01", 1000), strings.Repeat("\"", 1000)
	v.Owner, v.Host, v.Mode = v.Notice.Reason, v.Notice.Reason, v.Notice.Reason
	v.Data = strings.Repeat("\x00", MaxData)
	enc := v.Encode()
	if got, ok := DecodeValue([]byte(enc)); !ok || len(got.Notice.Reason) != MaxText || len(enc) > maxValue {
		t.Errorf("%v, %d bytes of %d", ok, len(enc), maxValue)
	}
	for _, within := range []string{"-1", "600001", "9223372036854775807"} {
		raw := fmt.Sprintf(`{"v":2,"queued_at":"2026-02-03T04:05:06Z","told_within_ms":%s}`, within)
		if v, ok := DecodeValue([]byte(raw)); !ok || v.ToldWithin != 0 {
			t.Errorf("%s: %v, %v", within, ok, v.ToldWithin)
		}
	}
	const at = "2026-02-03T04:05:06Z"
	long := fmt.Sprintf(`{"v":2,"queued_at":%q,"notice":{"by":%q,"at":%q}}`, at, strings.Repeat("x", 5000), at)
	if v, ok := DecodeValue([]byte(long)); !ok || len(v.Notice.By) != MaxText {
		t.Errorf("%v, %d bytes", ok, len(v.Notice.By))
	}
}

func TestSessionIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	who := Identity{Owner: "o", Host: "h", PID: 7}
	text := who.Encode()
	if got := DecodeIdentity([]byte(text)); got != who || text != `{"v":2,"owner":"o","host":"h","pid":7}` {
		t.Errorf("%s is read as %+v", text, got)
	}
	if got := DecodeIdentity([]byte(`{"owner":"o","pid":"7"}`)); got != (Identity{}) {
		t.Errorf("a value of another form is read as %+v", got)
	}
}
