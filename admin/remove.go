package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Remove takes a lock away from a holder that does not answer: the one whose acquisition has that
// token, which must still hold. It asks like Kick, with holdfast.CauseRemoved, and then moves the
// entry to a lease of its own of the holder's LockDelay and 6 s (not less than etcd's smallest TTL).
// The name is free as soon as the holder releases it, and without that when that lease has ended: see
// Notice.Until. It also frees a name that locker.Options.MinHold keeps taken after a release, after
// the same time.
//
// Guaranteed: a holder that is connected to etcd has been told, its contexts have ended and its Check
// says so, before another can hold. Not guaranteed: that its work has ended by then; and that a holder
// is told that is paused or cut off from etcd for that time. It believes that it holds until it
// continues, or for up to the TTL of its session. So what it writes must be fenced: see package
// fencing. Without a fence wait for the TTL instead, or stop the process first.
//
// A lock of several names (locker.Set, locker.TreeMutex) has other entries, which stay where they are: its holder
// releases all of them when it is told. If it never is, only this name is free after that time, and the others when
// the lease of its session has ended. A tree lock is removed at its own path: at a path above, only that is freed.
//
// nil means that the entry was moved, or that the holder has let go. If Remove or its process ends in
// between, the holder has been asked, as by Kick, and nothing else has happened; it may be repeated.
// The token and the errors are those of Kick.
func (c *Client) Remove(
	ctx context.Context, kind holdfast.Kind, name string, token holdfast.Token, reason string,
) error {
	r, err := c.newRequest(ctx, kind, name, token, reason)
	if err != nil {
		return err
	}
	r.notice.Removed = true
	if err = r.ask(ctx); err == nil {
		err = r.move(ctx)
	}
	return r.finish(ctx, audit.Removed, err)
}

// move puts the holder's entry again, with a lease of its own.
//
// The notice stands in the entry before that lease is granted, so the holder has the whole life of the lease to find
// it, however late the move is carried out. A move that comes after the lease has ended fails. The lease is not revoked
// when something goes wrong: that would delete an entry which was moved after all.
func (r *request) move(ctx context.Context) error {
	return r.retry(ctx, func(ctx context.Context) error {
		err := r.find(ctx)
		var failed *HolderError
		switch {
		case errors.As(err, &failed) && errors.Is(err, ErrNotHeld):
			r.unanswered = false
			return nil // it has let go, or the lease has ended
		case err != nil:
			return err
		case r.holder.all(moved):
			r.unanswered = false
			return nil // moved, by an unanswered request or by another administrator
		}
		seconds := int64((r.holder.writable[0].value.ToldWithin + time.Second - 1) / time.Second)
		grant := func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) { return r.client.Grant(ctx, seconds) }
		lease, _, err := requests.Once(ctx, r.sender, requests.Write, grant)
		if err != nil {
			return fmt.Errorf("grant a lease: %w", retry.WithConnection(r.client.ActiveConnection(), err))
		}
		until := time.Now().Add(time.Duration(lease.TTL) * time.Second)
		putUntil := func(n layout.Notice) layout.Notice { n.Until = until; return n }
		err = r.write(ctx, putUntil, moved, r.claims(), clientv3.WithLease(lease.ID))
		if errors.Is(err, rpctypes.ErrPermissionDenied) && r.queue.Foreign { // perhaps of the claim only
			err = r.write(ctx, putUntil, moved, nil, clientv3.WithLease(lease.ID))
		}
		if etcderr.Classify(err) == etcderr.LeaseGone {
			err = retry.Again(err)
		}
		return err
	})
}

// claims deletes the claims of the entries that are moved. A holder is told before its moved entry goes, so nothing is
// left to be waited for then. A role may lack the right to those of a prefix. Then those behind wait once more.
func (r *request) claims() (deletions []clientv3.Op) {
	for _, w := range r.holder.writable {
		deletions = append(deletions, clientv3.OpDelete(r.queue.ClaimKey(w.key)))
	}
	return deletions
}

// moved reports whether the entry with that notice was moved.
func moved(n layout.Notice) bool { return !n.Until.IsZero() }
