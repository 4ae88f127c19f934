package layout

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

const (
	// MaxMember bounds Member.Data in bytes.
	MaxMember = 4 << 10

	// MaxWeight is the largest weight of a member.
	MaxWeight = 1000

	// DrainedFor is the TTL of a DrainedKey's lease. The member renews it each 15 minutes.
	DrainedFor = 75 * time.Minute
)

// maxSettle bounds Member.Settle, in milliseconds: an hour.
const maxSettle = 3_600_000

// Member is the value of a member's key: who has joined a group, and what it says of itself.
type Member struct {
	Identity           // each text is cut to 256 bytes
	Name     string    // of the member in its group; at most MaxText
	Data     string    // any bytes, at most MaxMember
	Capacity           // what it takes of the shards
	Retiring bool      // it is about to leave
	Reserved bool      // it is the reservation of a member, perhaps of an absent one
	Joined   time.Time // by its clock, in milliseconds

	// Settle is how long it takes no shards after it has joined, in milliseconds; 0: it takes them at once.
	Settle time.Duration
}

// Capacity is what a member takes of the shards. The zero value of each field is its default.
type Capacity struct {
	Weight       int    `json:"weight,omitempty"` // 0 is 1; at most MaxWeight
	MaxShards    int    `json:"max_shards,omitempty"`
	OutOfService bool   `json:"out_of_service,omitempty"`
	Zone         string `json:"zone,omitempty"` // at most MaxText
}

// valid reports whether a member may say that.
func (c Capacity) valid() bool {
	return 0 <= c.Weight && c.Weight <= MaxWeight && c.MaxShards >= 0 && len(c.Zone) <= MaxText
}

type encodedMember struct {
	V int `json:"v"`
	Identity
	Name string `json:"name"`
	encodedData
	Capacity
	Retiring bool      `json:"draining,omitempty"` // its first name
	Reserved bool      `json:"reserved,omitempty"`
	Joined   time.Time `json:"joined_at"`
	Settle   int64     `json:"settle_ms,omitempty"`
}

// Encode returns the value as it is written in etcd.
func (m Member) Encode() (string, error) {
	return toJSON(encodedMember{ // an error for a year of more than four digits
		V: format, Identity: Identity{Owner: cut(m.Owner), Host: cut(m.Host), PID: m.PID}, Name: m.Name,
		encodedData: encodeData(m.Data), Capacity: m.Capacity, Retiring: m.Retiring, Reserved: m.Reserved,
		Joined: Millis(m.Joined), Settle: m.Settle.Milliseconds(),
	})
}

// DecodeMember decodes a value of Encode, of this version or a later one. It reports false for any other. An invalid
// capacity counts as the default.
func DecodeMember(b []byte) (Member, bool) {
	var enc encodedMember
	if len(b) == 0 || b[0] != '{' || len(b) > maxValue || json.Unmarshal(b, &enc) != nil {
		return Member{}, false
	}
	if !enc.valid() {
		enc.Capacity = Capacity{}
	}
	m := Member{
		Identity: enc.Identity, Name: enc.Name, Data: enc.decode(), Capacity: enc.Capacity, Retiring: enc.Retiring,
		Reserved: enc.Reserved, Joined: Millis(enc.Joined),
		Settle: time.Duration(min(max(0, enc.Settle), maxSettle)) * time.Millisecond,
	}
	ok := enc.V >= format && len(m.Data) <= MaxMember && plausible(m.Joined) &&
		max(len(m.Owner), len(m.Host), len(m.Name)) <= MaxText
	return m, ok
}

// Steer is the value of a key beside the members. By it an operator takes a member out of service, or pins a shard to
// it. Older members leave it out, since it has no time of joining.
type Steer struct {
	Member string    // its name
	By     string    // who has asked for it; cut to 256 bytes
	At     time.Time // by the operator's clock, in milliseconds
	Until  time.Time // of a pin, when its lease ends, likewise
}

type encodedSteer struct {
	V      int       `json:"v"`
	Member string    `json:"member"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"`
}

// Encode returns the value as it is written in etcd.
func (s Steer) Encode() (string, error) {
	return toJSON(encodedSteer{format, s.Member, cut(s.By), Millis(s.At), Millis(s.Until)})
}

// DecodeSteer decodes a value of Encode. It reports false for any other.
func DecodeSteer(b []byte) (Steer, bool) {
	var enc encodedSteer
	if len(b) == 0 || b[0] != '{' || len(b) > maxValue || json.Unmarshal(b, &enc) != nil {
		return Steer{}, false
	}
	s := Steer{enc.Member, enc.By, Millis(enc.At), Millis(enc.Until)}
	ok := enc.V >= format && s.Member != "" && max(len(s.Member), len(s.By)) <= MaxText && plausible(s.At) &&
		(s.Until.IsZero() || plausible(s.Until))
	return s, ok
}

// Members returns where the members of a group stand: in the form of a queue, whose entries they are not.
func Members(namespace, group string) Keyspace { return Named(namespace, "member", group) }

// ReservationKey is the key of the reservation of a member of a group.
func (q Keyspace) ReservationKey(id string) string { return q.Entries + "reserved-" + id }

// What the keys of a Steer begin with, behind Entries and behind the keys of members.
const (
	drained = "out-"
	pinned  = "pin-"
)

// DrainedKey is the key that takes a member of a group out of service.
func DrainedKey(q Keyspace, member string) string {
	return q.Entries + drained + url.PathEscape(member)
}

// PinKey is the key that pins a shard to a member of a group.
func PinKey(q Keyspace, shard int) string { return q.Entries + pinned + strconv.Itoa(shard) }

// SteerIn returns what a key of the group says if it is a DrainedKey, with shard -1, or a PinKey; and false otherwise.
func SteerIn(q Keyspace, kv *mvccpb.KeyValue) (s Steer, shard int, ok bool) {
	s, ok = DecodeSteer(kv.Value)
	key := string(kv.Key)
	if !ok || key == DrainedKey(q, s.Member) {
		return s, -1, ok
	}
	index, isPin := strings.CutPrefix(key, q.Entries+pinned)
	shard, err := strconv.Atoi(index)
	return s, shard, isPin && err == nil && 0 <= shard && shard < MaxCount && PinKey(q, shard) == key
}

// MemberKeys returns the range of the keys of members, without reservations: they begin with a lease in hexadecimal.
func (q Keyspace) MemberKeys() (from, end string) { return q.Entries, q.Entries + "g" }

// ShardGroup is the group of the members that share the shards of a name.
func ShardGroup(name string) string { return "shard/" + name }
