package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// Entry is one holder or waiter. Owner, Host and PID are empty where its session was anonymous, and for other clients.
type Entry struct {
	Key      string // in etcd
	Owner    string
	Host     string
	PID      int
	Value    string // of an election: the candidate's value
	QueuedAt time.Time
	HeldAt   time.Time // zero: it does not hold, or has held for less than about a second

	// Zero unless it was released, and locker.Options.MinHold keeps the name taken without its session.
	ReleasedAt time.Time
	TakenUntil time.Time // by the clock of that process; etcd ends leases up to a second or two later

	Token    fencing.Token // what the entry's writes are guarded with once it holds; 0: not known
	Revision int64         // the create revision: the order of the queue
	Lease    clientv3.LeaseID
	TTL      time.Duration // until the lease expires unless it is renewed; NoTTL: not known
	Foreign  bool          // of another client, such as etcd's own locks
}

// NoTTL says that the time a lease has left is not known: it is gone already, or the role may not ask.
const NoTTL time.Duration = -1

// String says who it is and since when, on one line.
func (e Entry) String() string {
	var who []string
	for _, text := range [][2]string{{"owner", e.Owner}, {"host", e.Host}, {"value", e.Value}} {
		if text[1] != "" {
			who = append(who, text[0]+" "+names.Quote(text[1]))
		}
	}
	if e.PID != 0 {
		who = append(who, "pid "+strconv.Itoa(e.PID))
	}
	if e.Foreign {
		who = append(who, "another client's key "+names.Quote(e.Key))
	}
	switch {
	case e.taken():
		who = append(who, "released at "+e.ReleasedAt.Format(time.RFC3339)+
			", its name taken until "+e.TakenUntil.Format(time.RFC3339))
	case !e.HeldAt.IsZero():
		who = append(who, "held since "+e.HeldAt.Format(time.RFC3339))
	case !e.QueuedAt.IsZero():
		who = append(who, "queued since "+e.QueuedAt.Format(time.RFC3339))
	}
	return strings.Join(append(who, fmt.Sprintf("lease %x", int64(e.Lease))), ", ")
}

// entryOf reads what stands at a key of a queue. Its token and TTL are asked for separately.
func entryOf(kv *mvccpb.KeyValue) Entry {
	e := Entry{Key: string(kv.Key), Revision: kv.CreateRevision, Lease: clientv3.LeaseID(kv.Lease), TTL: NoTTL}
	v, ok := queue.DecodeValue(kv.Value)
	if !ok {
		e.Foreign, e.Value = true, string(kv.Value[:min(len(kv.Value), queue.MaxData)])
		return e
	}
	e.Owner, e.Host, e.PID, e.Value = v.Owner, v.Host, v.PID, v.Data
	e.QueuedAt, e.HeldAt = v.Queued, v.Held
	e.ReleasedAt, e.TakenUntil = v.Released, v.TakenUntil
	return e
}

// taken reports whether MinHold keeps the name although the entry was released.
func (e Entry) taken() bool { return !e.ReleasedAt.IsZero() }
