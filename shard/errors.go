package shard

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

var (
	// ErrMoved is the cause of a function's context when its shard is assigned to another member.
	ErrMoved = errors.New("the shard is assigned to another member")

	// ErrReturned is told to Options.OnError when a function has returned nil while its shard is assigned to this member:
	// the shard has no owner until the function is called again.
	ErrReturned = errors.New("the function has returned although its shard is still assigned to this member; " +
		"it should go on until its context ends")

	// ErrNotDrained means that a function has not returned within Options.DrainTimeout of the end of its context. It is
	// still running, without its shard; only fencing stops its writes.
	ErrNotDrained = errors.New("the function has not returned after its shard was to be handed over")
)

// CheckName returns nil, or a *holdfast.NameError if name cannot name shards. A name is one or more non-empty segments
// joined by "/", none starting with "@", at most 500 bytes. Run checks too, before it sends anything.
func CheckName(name string) error {
	if err := names.Check(holdfast.KindShard, name); err != nil {
		return err
	}
	if len(name) > maxName {
		reason := fmt.Sprintf("is longer than %d bytes", maxName)
		return &holdfast.NameError{Kind: string(holdfast.KindShard), Name: name, Reason: reason}
	}
	return nil
}

// maxName leaves room for the index of a shard, and for the name of the group.
const maxName = 500

// CountError says that etcd has another number of shards than the program names. Nothing is held.
type CountError struct {
	Name  string // of the shards
	Count int    // in etcd
	Named int    // by the program
	Key   string // where the number stands in etcd
}

func (e *CountError) Error() string {
	return fmt.Sprintf("there are %d shards %s by %s, and this program names %d: all programs must name the "+
		"same number; to change it, stop all members, run \"holdfast shards resize\", and start them with the new number",
		e.Count, names.Quote(e.Name), names.Quote(e.Key), e.Named)
}
