package layout

import (
	"strings"

	"github.com/holdfast-go/holdfast"
)

// A permit of a semaphore stands at NAME/@/. A caller that has to wait has a turn at NAME/@turn/ instead, with the same
// last part if the permit's own Txn has put it. Put a second time, a turn is a permit, and stays where it is:
//
//	rev 10  NAME/@/3-694d-A      A holds 3 permits of 3
//	rev 12  NAME/@turn/1-694d-B  B waits
//	rev 15  A's permit is deleted; rev 16: B's turn is put again, version 2: B holds
const (
	turns      = "turn/" // follows NAME/@
	turnsClaim = "t"     // begins the last part of a turn's claim; those of permits begin with a weight
)

// TurnKey is the key of the turn that goes with the key of a permit.
func (q Keyspace) TurnKey(permit string) string { return q.Own() + turns + lastPart(permit) }

// PermitOf is the key of the permit that goes with the key of a turn. Any other key it returns as it is.
func (q Keyspace) PermitOf(key string) string {
	if q.IsTurn(key) {
		return q.Entries + lastPart(key)
	}
	return key
}

// IsTurn reports whether a key is of a turn of the semaphore.
func (q Keyspace) IsTurn(key string) bool {
	return q.Kind == holdfast.KindSemaphore && strings.HasPrefix(key, q.Own()+turns)
}

// Turns returns the range of the turns.
func (q Keyspace) Turns() (from, end string) { return q.Own() + turns, q.Own() + "turn0" }

// Semaphore returns the range of all keys of a semaphore: permits, claims, the limit, and turns.
func (q Keyspace) Semaphore() (from, end string) { return q.Entries, q.Own() + "turn0" }
