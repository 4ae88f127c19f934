package layout

import (
	"encoding/json"
	"time"
)

// MaxMember bounds Member.Data in bytes.
const MaxMember = 4 << 10

// Member is the value of a member's key: who has joined a group, and what it says of itself.
type Member struct {
	Identity           // each text is cut to 256 bytes
	Name     string    // of the member in its group; at most MaxText
	Data     string    // any bytes, at most MaxMember
	Draining bool      // it is about to leave
	Reserved bool      // it is the reservation of a member, which may be absent
	Joined   time.Time // by its clock, in milliseconds
}

type encodedMember struct {
	V int `json:"v"`
	Identity
	Name string `json:"name"`
	encodedData
	Draining bool      `json:"draining,omitempty"`
	Reserved bool      `json:"reserved,omitempty"`
	Joined   time.Time `json:"joined_at"`
}

// Encode returns the value as it is written in etcd.
func (m Member) Encode() (string, error) {
	return toJSON(encodedMember{ // an error for a year of more than four digits
		V: format, Identity: Identity{Owner: cut(m.Owner), Host: cut(m.Host), PID: m.PID},
		Name: m.Name, encodedData: encodeData(m.Data), Draining: m.Draining, Reserved: m.Reserved, Joined: Millis(m.Joined),
	})
}

// DecodeMember decodes a value that Encode has written, in this version or a later one. It reports false for any other.
func DecodeMember(b []byte) (Member, bool) {
	var enc encodedMember
	if len(b) == 0 || b[0] != '{' || len(b) > maxValue || json.Unmarshal(b, &enc) != nil {
		return Member{}, false
	}
	m := Member{
		Identity: enc.Identity, Name: enc.Name, Data: enc.decode(), Draining: enc.Draining, Reserved: enc.Reserved,
		Joined: Millis(enc.Joined),
	}
	ok := enc.V >= format && len(m.Data) <= MaxMember && plausible(m.Joined) &&
		max(len(m.Owner), len(m.Host), len(m.Name)) <= MaxText
	return m, ok
}

// Members returns where the members of a group stand: in the form of a queue, whose entries they are not.
func Members(namespace, group string) Queue { return Named(namespace, "member", group) }

// ReservationKey is the key of the reservation of a member of a group.
func (q Queue) ReservationKey(id string) string { return q.Entries + "reserved-" + id }

// MemberKeys returns the range of the keys of members, without reservations: they begin with a lease in hexadecimal.
func (q Queue) MemberKeys() (from, end string) { return q.Entries, q.Entries + "g" }

// ShardGroup is the group of the members that share the shards of a name.
func ShardGroup(name string) string { return "shard/" + name }
