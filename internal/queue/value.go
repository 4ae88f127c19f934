package queue

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/lease"
)

const (
	// MaxData bounds Value.Data in bytes.
	MaxData = 64 << 10

	// maxText bounds each of the other texts of a Value in bytes.
	maxText = 256

	// maxValue bounds an encoded Value: Data at its longest is text of which
	// each byte is escaped by two.
	maxValue = 2*MaxData + 8<<10

	// valueFormat is the number of the format that is written. Fields may be
	// added to it, and readers ignore those they do not know; it changes when a
	// field gets another meaning.
	valueFormat = 1
)

// Value is what an entry says of itself: for people who look into etcd, and for
// observers. Nothing is decided by it. Times are those of the clock of the
// process that wrote them, in UTC, to the millisecond.
type Value struct {
	lease.Identity // each text cut to 256 bytes

	Mode   string    // of a lock: "exclusive"
	Queued time.Time // when the entry was put
	Held   time.Time // since when it is held; zero: it is not, or has not said so yet
	Data   string    // a candidate's value: any bytes, at most MaxData
}

// encodedValue is a Value in etcd: JSON, so that etcdctl shows it to people.
// Session keys begin the same way.
type encodedValue struct {
	V int `json:"v"`
	lease.Identity
	Mode   string    `json:"mode,omitempty"`
	Queued time.Time `json:"queued_at"`
	Held   time.Time `json:"held_since,omitzero"`
	Text   string    `json:"value,omitempty"`
	Bytes  []byte    `json:"value_base64,omitempty"` // where Data is not text
}

// Encode is the value as it stands in etcd.
func (v Value) Encode() string {
	enc := encodedValue{
		V: valueFormat, Mode: cut(v.Mode),
		Identity: lease.Identity{Owner: cut(v.Owner), Host: cut(v.Host), PID: v.PID},
		Queued:   millis(v.Queued), Held: millis(v.Held),
	}
	if isText(v.Data) {
		enc.Text = v.Data
	} else {
		enc.Bytes = []byte(v.Data)
	}
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	if err := to.Encode(enc); err != nil {
		return "" // a year of more than four digits; nothing depends on the value
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// DecodeValue reads what Encode has written, by this version or a later one. It
// reports false for anything else: the value of an entry of etcd's own clients,
// or of a version of holdfast that had no format number.
func DecodeValue(b []byte) (Value, bool) {
	var enc encodedValue
	if len(b) == 0 || b[0] != '{' || len(b) > maxValue || json.Unmarshal(b, &enc) != nil {
		return Value{}, false
	}
	v := Value{
		Identity: enc.Identity, Mode: enc.Mode,
		Queued: millis(enc.Queued), Held: millis(enc.Held), Data: enc.Text,
	}
	if len(enc.Bytes) > 0 {
		v.Data = string(enc.Bytes)
	}
	ok := enc.V >= valueFormat && len(v.Data) <= MaxData && plausible(v.Queued) &&
		max(len(v.Owner), len(v.Host), len(v.Mode)) <= maxText && (v.Held.IsZero() || plausible(v.Held))
	if !ok {
		return Value{}, false
	}
	return v, true
}

// String says who it is and since when, on one line.
func (v Value) String() string {
	since := "queued since " + v.Queued.Format(time.RFC3339Nano)
	if !v.Held.IsZero() {
		since = "held since " + v.Held.Format(time.RFC3339Nano)
	}
	return strings.Join(append(v.who(), since), ", ")
}

// holder says who it is: a candidate by its value above all.
func (v Value) holder() string {
	who := strings.Join(v.who(), ", ")
	if v.Data == "" {
		return who
	}
	return v.Data + " (" + who + ")"
}

func (v Value) who() (who []string) {
	for _, text := range [][2]string{{"owner", v.Owner}, {"host", v.Host}} {
		if text[1] != "" {
			who = append(who, fmt.Sprintf("%s %q", text[0], text[1]))
		}
	}
	if v.PID != 0 {
		who = append(who, fmt.Sprintf("pid %d", v.PID))
	}
	return who
}

// NewValue is the value of an entry of this queue that is about to be put. An
// owner that is not empty is written in place of the session's.
func (q *Queue) NewValue(owner, mode, data string) string {
	if q.verbatim() {
		return data
	}
	who := q.sess.Identity()
	who.Owner = cmp.Or(owner, who.Owner)
	return Value{Identity: who, Mode: mode, Queued: time.Now(), Data: data}.Encode()
}

// verbatim reports whether entries consist of the candidate's value and nothing
// else: etcd's own observers read them. (Its locks have empty values, and ignore
// those of others.)
func (q *Queue) verbatim() bool { return q.foreign && q.kind == "election" }

// heldValue is the value of an entry that is held since then, with data for what
// it had. Of an entry with a value of some other form it is data.
func (e *entry) heldValue(since time.Time, data string) string {
	v, ok := DecodeValue([]byte(e.value))
	if e.q.verbatim() || !ok {
		return data
	}
	v.Held, v.Data = since, data
	return v.Encode()
}

// holdsValue compares true while the entry is this one, and its value the one
// that was put at mod.
func (e *entry) holdsValue(mod int64) []clientv3.Cmp {
	return []clientv3.Cmp{e.owned(), clientv3.Compare(clientv3.ModRevision(e.key), "=", mod)}
}

// putValue replaces the value. The entry keeps the lease that it has by then.
func (e *entry) putValue(value string) clientv3.Op {
	return clientv3.OpPut(e.key, value, clientv3.WithIgnoreLease())
}

// millis is t as a Value has it. Two of the same moment are equal by ==.
func millis(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond) // and without a monotonic reading
}

// plausible times can be written again.
func plausible(t time.Time) bool { return t.Year() > 0 && t.Year() < 9999 && !t.IsZero() }

// isText reports whether data reads as text in JSON, and how long that is at
// most is known.
func isText(data string) bool {
	return utf8.ValidString(data) && !strings.ContainsFunc(data, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' && r != '\r'
	})
}

// cut is text, bounded and valid UTF-8.
func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}
