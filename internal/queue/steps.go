package queue

import "github.com/holdfast-go/holdfast/internal/lease"

// An Action is one of the steps of tests/models/queuemodel and semmodel that only the client knows of.
type Action string

const (
	// Sends: a put of the entry is sent. Etcd has not created the entry, or it is not known.
	Sends Action = "sends its put"
	// Judged: the entry knows what stands ahead, and whether it has to wait for the lock delay then.
	Judged Action = "knows what stands ahead"
	// Waited: its lock delay is over, and etcd has answered a read of it since.
	Waited Action = "has waited for its lock delay"
	// Holds: its attempt holds.
	Holds Action = "holds"
)

// A Step is what an entry has just done.
type Step struct {
	Action  Action
	Key     string
	Created int64 // the create revision of the entry; 0 of Sends

	Lease *lease.Lease `json:"-"`

	// Of Sends: the mod revision of the session key that the put compares.
	Gate int64 `json:",omitzero"`

	// Of Judged: the key and the create revision of the entry ahead, or nothing; whether the lock delay begins; and the
	// revision of the read that told it, at which the entry itself stood. A permit may be told by a watch instead: then
	// the revision of the mark; 0 if too many sessions have ended to be read.
	Ahead        string `json:",omitzero"`
	AheadCreated int64  `json:",omitzero"`
	Delays       bool   `json:",omitzero"`
	Read         int64  `json:",omitzero"`

	// Of Judged. LongTold: the lock delay would begin, had the former holder not been told longer ago than that.
	// Unfound: the lock delay begins because what had to be read was compacted, or was not found in time.
	LongTold bool `json:",omitzero"`
	Unfound  bool `json:",omitzero"`
}
