package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/names"
)

var (
	// ErrCountUnknown means: etcd has no number of shards of that name, so no key is in a shard. None has been run yet,
	// or the name is wrong.
	ErrCountUnknown = errors.New("the number of shards is not known: the first program that runs them puts it; check " +
		"the name and the namespace")

	// ErrResized means: the number of shards was changed, and no shard has an owner under the new number. The members
	// have not been started yet, or all have stopped again.
	ErrResized = errors.New("the number of shards was changed, and none has an owner since; start the members with the " +
		"new number, and try again")
)

// OwnerOf returns the owner of a key's shard, by the number of shards in etcd at that revision: zero if the shard has
// none. It is right after a resize, too; a number in the program is not. The error is ErrCountUnknown, or, from a
// resize until a shard is owned, ErrResized.
func (o Owners) OwnerOf(key string) (Owner, error) {
	if err := o.routable(); err != nil {
		return Owner{}, fmt.Errorf("owner of the key %s: %w", names.Quote(key), err)
	}
	return o.Owners[Of(key, len(o.Owners))], nil
}

// routable returns why a key is in no shard now, or nil.
//
//	rev 10: the number is put · rev 20: orders/3 is queued for · rev 30: the last entry goes
//	rev 31: another number is put → ErrResized · rev 40: orders/5 is queued for → nil
//
// A resize compares that no entry stands. So each entry is of the present number, unless someone put it by hand.
func (o Owners) routable() error {
	if len(o.Owners) == 0 {
		return ErrCountUnknown
	}
	if o.resized == 0 {
		return nil
	}
	for i := range o.Owners {
		if o.Owners[i].Revision > o.resized {
			return nil
		}
	}
	return ErrResized
}

// OwnerOf asks etcd for the owner of a key's shard, as Owners.OwnerOf says, with one read of all owners. For many keys
// use an Observer. The errors are those of Owners, ErrCountUnknown and ErrResized.
func (r *Reader) OwnerOf(ctx context.Context, key string) (Owner, error) {
	now, err := r.Owners(ctx)
	if err != nil {
		return Owner{}, err
	}
	owner, err := now.OwnerOf(key)
	if err != nil {
		return Owner{}, fmt.Errorf("shards %s: %w", names.Quote(r.name), err)
	}
	return owner, nil
}

// OwnerOf returns the owner of a key's shard as the observer last heard of it, without a request, with the errors of
// Owners.OwnerOf. Current says how old that may be.
func (o *Observer) OwnerOf(key string) (Owner, error) { return o.Current().OwnerOf(key) }
