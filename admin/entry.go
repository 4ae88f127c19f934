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
	HeldAt   time.Time     // zero: it does not hold, or has held for less than about a second
	Token    fencing.Token // what the entry's writes are guarded with once it holds; 0: not known
	Revision int64         // the create revision: the order of the queue
	Lease    clientv3.LeaseID
	TTL      time.Duration // until the lease expires unless it is renewed; NoTTL: not known
	Foreign  bool          // of another client, such as etcd's own locks
	Notice   Notice        // an administrator's, to the holder

	session clientv3.LeaseID // of the session that put it
}

// NoTTL says that the time a lease has left is not known: it is gone already, or the role may not ask.
const NoTTL time.Duration = -1

// String says who it is and since when, on one line.
func (e Entry) String() string {
	who := e.who()
	switch {
	case !e.HeldAt.IsZero():
		who = append(who, "held since "+e.HeldAt.Format(time.RFC3339))
	case !e.QueuedAt.IsZero():
		who = append(who, "queued since "+e.QueuedAt.Format(time.RFC3339))
	}
	if notice := e.Notice.String(); notice != "" {
		who = append(who, notice)
	}
	return strings.Join(append(who, fmt.Sprintf("lease %x", int64(e.Lease))), ", ")
}

// who says who the entry is of.
func (e Entry) who() (who []string) {
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
	return who
}

// entryOf reads what stands at a key of a queue. Its token and TTL are asked for separately.
func entryOf(kv *mvccpb.KeyValue) Entry {
	e := Entry{
		Key: string(kv.Key), Revision: kv.CreateRevision, Lease: clientv3.LeaseID(kv.Lease), TTL: NoTTL,
		session: sessionLease(kv),
	}
	v, ok := queue.DecodeValue(kv.Value)
	if !ok {
		e.Foreign, e.Value = true, string(kv.Value[:min(len(kv.Value), queue.MaxData)])
		return e
	}
	e.Owner, e.Host, e.PID, e.Value = v.Owner, v.Host, v.PID, v.Data
	e.QueuedAt, e.HeldAt, e.Notice = v.Queued, v.Held, Notice(v.Notice)
	return e
}
