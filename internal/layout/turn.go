package layout

import (
	"strings"

	"github.com/holdfast-go/holdfast"
)

// A permit of a semaphore stands at NAME/@/. A caller that does not get one at once has a turn at NAME/@turn/ instead,
// with the same last part. A turn that was put a second time is a permit, and stays where it is.
const (
	turns      = "turn/" // follows NAME/@
	turnsClaim = "t"     // begins the last part of a turn's claim; those of permits begin with a weight
)

// TurnKey is the key of the turn of the caller whose permit has that key.
func (q Queue) TurnKey(permit string) string { return q.Own() + turns + lastPart(permit) }

// PermitOf is the key of the permit of the caller whose turn has that key. Any other key it returns as it is.
func (q Queue) PermitOf(key string) string {
	if q.IsTurn(key) {
		return q.Entries + lastPart(key)
	}
	return key
}

// IsTurn reports whether a key is that of a turn of the semaphore.
func (q Queue) IsTurn(key string) bool {
	return q.Kind == holdfast.KindSemaphore && strings.HasPrefix(key, q.Own()+turns)
}

// Turns returns the range of the turns.
func (q Queue) Turns() (from, end string) { return q.Own() + turns, q.Own() + "turn0" }

// Semaphore returns the range of all keys of a semaphore: permits, claims, the limit, and turns.
func (q Queue) Semaphore() (from, end string) { return q.Entries, q.Own() + "turn0" }
