package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
)

// The reasons in a HolderError. Test for them with errors.Is.
var (
	// ErrNotHeld: the acquisition with that token does not hold the lock any more.
	ErrNotHeld = errors.New("it does not hold any more")

	// ErrWaits: the entry with that token waits for the lock.
	ErrWaits = errors.New("it waits and does not hold")

	// ErrNotTold: the holder does not look for requests: it is of another client or of an older version, or leads an
	// election under a prefix. See docs/operations.md.
	ErrNotTold = errors.New("its holder takes no requests: it is of another client or of an older version, " +
		"or leads an election under a prefix, whose entries have no place for them")
)

// HolderError says why a holder cannot be asked to let go. Nothing was written, unless errors.Is says
// holdfast.ErrOutcomeUnknown, too: then a request was not answered, and may have been what has ended the hold.
type HolderError struct {
	Token  holdfast.Token // as it was given
	Err    error          // ErrNotHeld, ErrWaits, ErrNotTold
	Holder Entry          // which holds now, of a semaphore the oldest; a zero Key: none does

	permit bool
}

func (e *HolderError) Error() string {
	what := "token"
	if e.permit {
		what = "permit"
	}
	if e.Holder.Key == "" {
		return fmt.Sprintf("%s %v: %v; none holds now", what, e.Token, e.Err)
	}
	return fmt.Sprintf("%s %v: %v; now: %v", what, e.Token, e.Err, e.Holder)
}

// Unwrap returns Err.
func (e *HolderError) Unwrap() error { return e.Err }

// Kick asks the holder of a lock, or a leader, to let go: the one whose acquisition has that token, which Show
// tells. It writes who asks (Options.Owner) and the reason, 1 to 256 bytes of UTF-8, into the entry of
// the holder.
//
// A holder that reaches etcd learns of it within six seconds, and as a rule at once: Kick also puts the
// holder's session key, as it is, which its session watches. A role that may not write session keys
// asks without that. The hold ends with holdfast.CauseKicked; Check and the causes of its contexts name
// who asked and why (*holdfast.KickError). The name stays taken until the holder releases the lock: Do
// does that when its function has returned, other callers with Unlock. A holder that hangs, or cannot
// reach etcd, is not affected: see Remove.
//
// A lock of several names (locker.Set, locker.TreeMutex) ends as a whole, by a request in the entry of any of
// them. If it is the first of this queue and still waits in another one, it gives up its place in all of them once
// it looks, within 30 seconds, and queues again at the back.
//
// A leader ends its work and resigns: RunWhileLeader and Run do, when their function has returned, or after
// election.Options.DrainTimeout. Run then campaigns again, at the back. A Term of Campaign leads on until Resign, as
// others see it. A leader of an election under a prefix (election.NewAt) takes no requests: ErrNotTold.
//
// A lock that is detached (see locker.Lock) has no holder to ask: its ticket ends, and the name is free at once.
//
// A permit of a semaphore has no token: give holdfast.Token(Entry.Revision). So also where Entry.Token is 0 because the
// epoch was raised after the holder queued, and etcd has compacted what it was before.
//
// nil means that the request stands in the entry, this one or that of an earlier Kick or Remove, and
// not that the holder knows of it. Events tells how it goes on.
//
// Errors: *HolderError, and nothing was written; *holdfast.ArgumentError and *holdfast.NameError
// before anything is sent; ctx's error, or etcd's where a retry cannot help. An error that Is
// holdfast.ErrOutcomeUnknown leaves open whether the request stands, which Show tells; Kick may be
// repeated.
func (c *Client) Kick(ctx context.Context, kind holdfast.Kind, name string, token holdfast.Token, reason string) error {
	r, err := c.newRequest(ctx, kind, name, token, reason)
	if err != nil {
		return err
	}
	return r.finish(ctx, audit.Kicked, r.ask(ctx))
}
