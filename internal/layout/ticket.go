package layout

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Ticket names a detached entry: who has it may go on with the hold. The zero Ticket names none.
type Ticket struct {
	Namespace string           `json:"namespace"`
	Key       string           `json:"-"` // of the entry
	Created   int64            `json:"created"`
	Mod       int64            `json:"mod"` // the mod revision since the Detach: an Attach compares it
	Token     holdfast.Token   `json:"token,omitzero"`
	Lease     clientv3.LeaseID `json:"lease"` // of entry and claim; nothing renews it
	Queued    time.Time        `json:"queued_at"`
	Held      time.Time        `json:"held_since"`
	Until     time.Time        `json:"until"` // when Lease ends at the earliest, by the clock of the Detach
}

// encodedTicket is a Ticket as it is written.
type encodedTicket struct {
	V int `json:"v"`
	Ticket
	Key []byte `json:"key"` // names may have any bytes
}

// maxTicket bounds a written Ticket, in bytes.
const maxTicket = 4 << 10

// Encode returns the ticket as text: letters, digits, "-" and "_".
func (t Ticket) Encode() string {
	b, _ := json.Marshal(encodedTicket{format, t, []byte(t.Key)}) // plain fields, and times of this century
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodeTicket returns the ticket that Encode has written, or what is wrong with any other text.
func DecodeTicket(text []byte) (t Ticket, bad string) {
	if len(text) > maxTicket {
		return t, fmt.Sprintf("is longer than %d bytes", maxTicket)
	}
	var enc encodedTicket
	b, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil || json.Unmarshal(b, &enc) != nil {
		return t, "is not what MarshalText has written"
	}
	t = enc.Ticket
	t.Key, t.Queued, t.Held, t.Until = string(enc.Key), Millis(t.Queued), Millis(t.Held), Millis(t.Until)
	q, found := t.Queue()
	_, ours := LeaseOf(t.Key)
	_, namespace := names.Namespace(t.Namespace)
	times := plausible(t.Queued) && plausible(t.Held) && plausible(t.Until)
	switch {
	case enc.V != format:
		return Ticket{}, fmt.Sprintf("has format %d; this version knows %d", enc.V, format)
	case !found, q.Check() != nil, !ours, namespace != nil, !times, t.Lease == clientv3.NoLease:
		return Ticket{}, "names no entry"
	case t.Created <= 0, t.Mod <= t.Created, t.Token != 0 && t.Token.Revision() != t.Created:
		return Ticket{}, "has revisions that no entry has"
	}
	return t, ""
}

// Queue returns the queue of the entry; false for the zero Ticket, and for a key that no Detach has named.
func (t Ticket) Queue() (Keyspace, bool) {
	q, found := Of(t.Namespace, t.Key)
	return q, found && (q.Kind == holdfast.KindLock || q.Kind == holdfast.KindSemaphore)
}
