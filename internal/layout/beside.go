package layout

import (
	"encoding/json"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/view"
)

// MaxPermits is the largest limit of a semaphore: a waiter may have to read so many entries.
const MaxPermits = 1024

// Limit is the limit of a semaphore. Nothing but Resize changes it, and nothing of holdfast deletes it.
//
// It is one number: clients of format 1 know no turns; they expect two numbers, and refuse it.
type Limit struct {
	Permits int
	Mod     int64 // the key's mod revision
}

// ValidLimit reports whether a semaphore may have that limit.
func ValidLimit(n int) bool { return 0 < n && n <= MaxPermits }

// String returns the limit as it is written in etcd.
func (l Limit) String() string { return strconv.Itoa(l.Permits) }

// LimitIn reads the value of a limit's key. It returns false if the value is none.
func LimitIn(kv *mvccpb.KeyValue) (Limit, bool) {
	l := Limit{weightIn(string(kv.Value)), kv.ModRevision}
	return l, l.Permits != 0
}

// MaxCount is the largest number of shards of one name.
const MaxCount = 1 << 14

// LimitKey is the key of a semaphore's limit. It sorts behind permits and claims, and before turns.
func (q Keyspace) LimitKey() string { return q.Own() + "limit" }

// RunKey is the key of the last run of a job. It is no entry, and there is none below a foreign prefix.
func (q Keyspace) RunKey() string { return q.Own() + "run" }

// CountKey is the key of the number of shards of a name, whose entries are those of the names NAME/0, NAME/1 and so on.
// Nothing of holdfast deletes it.
func (q Keyspace) CountKey() string { return q.Own() + "count" }

// encodedRun is a view.Run as it is written in etcd: JSON, as the values of entries.
type encodedRun struct {
	V int `json:"v"`
	Identity
	Slot  string         `json:"slot,omitempty"`
	At    time.Time      `json:"at"`
	Due   time.Time      `json:"due,omitzero"`
	Token holdfast.Token `json:"token"`
}

// EncodeRun returns a run as it is written in etcd. Its times are cut to milliseconds.
func EncodeRun(r view.Run) (string, error) {
	who := Identity{Owner: r.Owner, Host: r.Host, PID: r.PID}
	b, err := json.Marshal(encodedRun{format, who, r.Slot, Millis(r.At), Millis(r.Due), r.Token})
	return string(b), err
}

// RunIn reads the value of a RunKey. It returns false if the value is none.
func RunIn(kv *mvccpb.KeyValue) (view.Run, bool) {
	var enc encodedRun
	if len(kv.Value) > maxValue || json.Unmarshal(kv.Value, &enc) != nil || enc.V < format || !plausible(enc.At) ||
		max(len(enc.Slot), len(enc.Owner), len(enc.Host)) > MaxText {
		return view.Run{}, false
	}
	return view.Run{
		Slot: enc.Slot, At: Millis(enc.At), Due: Millis(enc.Due), Token: enc.Token,
		Owner: enc.Owner, Host: enc.Host, PID: enc.PID,
	}, true
}
