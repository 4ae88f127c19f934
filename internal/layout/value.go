package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

const (
	// MaxData bounds Value.Data in bytes.
	MaxData = 64 << 10

	// MaxText bounds each of the other texts of a Value, in bytes.
	MaxText = 256

	// maxValue bounds an encoded Value in bytes. JSON writes each byte of Data as
	// two bytes at most.
	maxValue = 2*MaxData + 8<<10

	// format is the number of the written format. Readers ignore unknown fields, so a format may get new fields. The
	// number changes when the meaning of a field does.
	format = 2
)

// Value is the information in an entry, for people who look into etcd and for
// observers. The algorithm does not use it. Times are by the clock of the process that
// wrote them, in UTC, in milliseconds.
type Value struct {
	Identity // each text is cut to 256 bytes

	Mode   string    // of a lock: "exclusive" or "shared"
	Queued time.Time // when the entry was put
	Held   time.Time // since when it is held; zero if it is not, or does not say so yet
	Data   string    // a candidate's value: any bytes, at most MaxData; in an entry above a tree lock, its path

	// Of an entry kept by MinHold: when it was released, and when its own lease ends. Zero otherwise.
	Released, TakenUntil time.Time

	// Of a detached entry: when its hold ended, and when its own lease ends. Zero otherwise.
	Detached, DetachedUntil time.Time

	// ToldWithin bounds the time until the holder is told of a Notice in its entry, while it reaches etcd. 0: it does not
	// look for notices.
	ToldWithin time.Duration
	Notice     Notice // of an administrator; zero if there is none
}

// maxToldWithin bounds Value.ToldWithin. An administrator chooses a lease by it.
const maxToldWithin = 10 * time.Minute

// encodedValue is a Value as it is written in etcd: JSON, for people with etcdctl. The values of session keys have the
// same form.
type encodedValue struct {
	V int `json:"v"`
	Identity
	Mode   string    `json:"mode,omitempty"`
	Queued time.Time `json:"queued_at"`
	Held   time.Time `json:"held_since,omitzero"`
	encodedData

	Taken    taken    `json:"taken,omitzero"` // by MinHold
	Detached detached `json:"detached,omitzero"`

	ToldWithin int64  `json:"told_within_ms,omitempty"`
	Notice     Notice `json:"notice,omitzero"`
}

type taken struct {
	Released time.Time `json:"released_at"`
	Until    time.Time `json:"until"`
}

type detached struct {
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
}

// encodedData is any bytes as they are written in etcd: as text, if that is readable in JSON.
type encodedData struct {
	Text  string `json:"value,omitempty"`
	Bytes []byte `json:"value_base64,omitempty"`
}

func encodeData(data string) encodedData {
	// JSON writes control characters as six bytes, which maxValue does not allow for.
	control := func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' && r != '\r' }
	if utf8.ValidString(data) && !strings.ContainsFunc(data, control) {
		return encodedData{Text: data}
	}
	return encodedData{Bytes: []byte(data)}
}

func (d encodedData) decode() string {
	if len(d.Bytes) > 0 {
		return string(d.Bytes)
	}
	return d.Text
}

// toJSON returns JSON for people: "<" stays "<".
func toJSON(enc any) (string, error) {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	err := to.Encode(enc)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// Encode returns the value as it is written in etcd.
func (v Value) Encode() string {
	enc := encodedValue{
		V: format, Mode: cut(v.Mode),
		Identity: Identity{Owner: cut(v.Owner), Host: cut(v.Host), PID: v.PID},
		Queued:   Millis(v.Queued), Held: Millis(v.Held),
		Taken:      taken{Millis(v.Released), Millis(v.TakenUntil)},
		Detached:   detached{Millis(v.Detached), Millis(v.DetachedUntil)},
		ToldWithin: v.ToldWithin.Milliseconds(),
	}
	if v.Data != "" {
		enc.encodedData = encodeData(v.Data)
	}
	if !v.Notice.At.IsZero() {
		enc.Notice = v.Notice.bounded()
	}
	text, _ := toJSON(enc) // "" for a year of more than four digits; the algorithm does not use the value
	return text
}

// DecodeValue decodes a value of Encode, of this version or a later one. It reports false for any other value, such as
// that of an entry of etcd's own clients.
func DecodeValue(b []byte) (Value, bool) {
	var enc encodedValue
	if len(b) == 0 || b[0] != '{' || len(b) > maxValue || json.Unmarshal(b, &enc) != nil {
		return Value{}, false
	}
	v := Value{
		Identity: enc.Identity, Mode: enc.Mode,
		Queued: Millis(enc.Queued), Held: Millis(enc.Held), Data: enc.decode(),
		Released: Millis(enc.Taken.Released), TakenUntil: Millis(enc.Taken.Until),
		Detached: Millis(enc.Detached.At), DetachedUntil: Millis(enc.Detached.Until),
		Notice: enc.Notice.bounded(),
	}
	if most := maxToldWithin.Milliseconds(); 0 < enc.ToldWithin && enc.ToldWithin <= most {
		v.ToldWithin = time.Duration(enc.ToldWithin) * time.Millisecond
	}
	ok := enc.V >= format && len(v.Data) <= MaxData && plausible(v.Queued) &&
		max(len(v.Owner), len(v.Host), len(v.Mode)) <= MaxText
	for _, t := range []time.Time{v.Held, v.Released, v.TakenUntil, v.Detached, v.DetachedUntil} {
		ok = ok && (t.IsZero() || plausible(t))
	}
	if !ok {
		return Value{}, false
	}
	return v, true
}

// Holder returns who put the entry. A candidate's value comes first.
func (v Value) Holder() string {
	var who []string
	for _, text := range [][2]string{{"owner", v.Owner}, {"host", v.Host}} {
		if text[1] != "" {
			who = append(who, fmt.Sprintf("%s %q", text[0], text[1]))
		}
	}
	if v.PID != 0 {
		who = append(who, fmt.Sprintf("pid %d", v.PID))
	}
	if v.Data == "" {
		return strings.Join(who, ", ")
	}
	return v.Data + " (" + strings.Join(who, ", ") + ")"
}

// Millis returns t in UTC and milliseconds, without a monotonic reading: two times of
// the same moment are equal by ==.
func Millis(t time.Time) time.Time {
	return t.UTC().Truncate(time.Millisecond)
}

// plausible reports whether a time can be encoded again.
func plausible(t time.Time) bool { return t.Year() > 0 && t.Year() < 9999 && !t.IsZero() }

// cut returns text as valid UTF-8 of at most MaxText bytes.
func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), MaxText)], "")
}

// Notice is what an administrator puts into the entry of a lock to have its holder let
// go. The holder finds it by the reads that its poller makes anyway.
//
// It ends the hold, and unlike any other loss it leaves the entry where it is: the
// holder is alive, and its work ends in order. The name is free once that calls
// Release. A Notice with Removed bounds this by Value.ToldWithin.
type Notice struct {
	By      string    `json:"by"` // each text is cut to MaxText
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"` // by the administrator's clock
	Removed bool      `json:"removed,omitempty"`
	// Until: the entry was moved to a lease of the administrator, and is gone by then.
	Until time.Time `json:"until,omitzero"`
}

// Given reports whether there is a notice.
func (n Notice) Given() bool { return !n.At.IsZero() }

// bounded returns the notice as it is written; none, if its times cannot be written.
func (n Notice) bounded() Notice {
	if !plausible(n.At) || !n.Until.IsZero() && !plausible(n.Until) {
		return Notice{}
	}
	n.By, n.Reason, n.At, n.Until = cut(n.By), cut(n.Reason), Millis(n.At), Millis(n.Until)
	return n
}

// Cause is why a hold with that notice has ended.
func (n Notice) Cause() holdfast.Cause {
	if n.Removed {
		return holdfast.CauseRemoved
	}
	return holdfast.CauseKicked
}

// Kick says who has written the notice, and why.
func (n Notice) Kick() *holdfast.KickError {
	return &holdfast.KickError{By: n.By, Reason: n.Reason, At: n.At}
}

// Identity says who a session is, for people who look into etcd. It is written
// there as JSON, next to a format number, "v".
type Identity struct {
	Owner string `json:"owner,omitempty"`
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
}

// Encode returns the value of the session's key.
func (i Identity) Encode() string {
	b, _ := json.Marshal(struct { // plain fields
		V int `json:"v"`
		Identity
	}{format, i})
	return string(b)
}

// DecodeIdentity returns what the value of a session key says.
func DecodeIdentity(b []byte) (i Identity) {
	if json.Unmarshal(b, &i) != nil {
		return Identity{}
	}
	return i
}

// ErrEpochMoved: the epoch was raised after the entry was put.
var ErrEpochMoved = errors.New("the fencing epoch was bumped after the entry was put")

// Token makes the fencing token of the entry put at rev, by what a read of the epoch's key has found. A later epoch is
// ErrEpochMoved. It must not be used:
//
//	rev 10  A's entry, in epoch 0; the reply is lost
//	rev 12  B's entry behind it: its token is of epoch 0
//	rev 14  the epoch is raised to 1; A reads it with its retry, and would hold first, with the larger token
func Token(found []*mvccpb.KeyValue, rev int64) (holdfast.Token, error) {
	if len(found) == 0 {
		return holdfast.NewToken(0, rev)
	}
	if found[0].ModRevision > rev {
		return 0, ErrEpochMoved
	}
	epoch, err := strconv.ParseInt(string(found[0].Value), 10, 64)
	token, bad := holdfast.NewToken(epoch, rev)
	if err != nil || bad != nil { // no ArgumentError: that would say that the caller has given it
		return 0, fmt.Errorf("fencing epoch at %s is not a number from 0 to 32767: %.64q", names.Quote(string(found[0].Key)),
			found[0].Value)
	}
	return token, nil
}
