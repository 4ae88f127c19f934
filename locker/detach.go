package locker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/session"
)

// Ticket lets its bearer go on with a hold that was detached, once: a process that has it, and may write the keys of
// the lock, holds by Attach. Treat it as a credential. String, and what fmt and log/slog write of it, names the lock
// only. MarshalText has it whole, and so has JSON that it is a part of. The zero Ticket is good for nothing.
type Ticket struct {
	of *layout.Ticket // a pointer: fmt calls no method of what is in an unexported field of a struct, and prints it
}

// Detach ends the hold, and keeps its place in the queue for so long, 1 s to 24 h: who has the ticket takes the
// hold over by Attach, AttachRead or AttachPermit, in any process of the session's namespace, with the same token.
//
//	ticket, err := lk.Detach(ctx, time.Hour)                                // the contexts of lk have ended
//	lk, err := locker.Attach(ctx, sess, ticket, locker.Options{})           // once, in any process
//
// The contexts of the hold end before anything is sent, as with Unlock, and Check is holdfast.ErrReleased; Unlock does
// nothing after it, and may be deferred. Then none holds until an Attach, and those who wait go on waiting. The session
// may be closed, or lost. When the time is over, or an administrator kicks the detached hold, the name is free at once,
// without a lock delay.
//
// A guard cannot tell the work before from the work after, since the token is the same: what the hold protects must
// have ended when Detach is called. A write of unknown outcome has not ended, since etcd may still carry it out, over
// what the next process writes under the ticket: Unlock instead, or read back first what was written. An empty lease
// stays in etcd until the time is over, for each Detach.
//
// After a *holdfast.ArgumentError the hold goes on: the time is out of range, or this lock has no ticket. None has a
// lock of several entries (Set, TreeMutex, LockDowngradable), each of which would have to be compared; one under a
// foreign prefix, whose own clients know no tickets; and one taken with Options.Reentrant, which others may share.
//
// After any other error the hold has ended, and there is no ticket. A *holdfast.LostError, or holdfast.ErrReleased,
// says that it had ended before. After ctx's error, or etcd's, the session removes the entry, as after Unlock; a ctx
// that has ended is treated as there. If the error Is holdfast.ErrOutcomeUnknown, etcd has not confirmed the removal.
// Then the name may stay taken for the whole time, if the session closes or its process dies before etcd answers: the
// error names the lease that keeps it, and a kick frees it.
func (s *single) Detach(ctx context.Context, within time.Duration) (Ticket, error) {
	q := s.hold.Queue()
	bad := ""
	switch {
	case ctx == nil: // Detach of the hold says so
	case len(s.hold.Together()) > 1 || q.Kind() == holdfast.KindTree:
		bad = "is a lock of several entries, each of which would have to be compared: it has no ticket"
	case q.Layout().Foreign:
		bad = "is of a foreign prefix, whose own clients know no tickets"
	case s.own != nil:
		bad = "was taken with Options.Reentrant: other handles may share the hold"
	}
	if bad != "" {
		return Ticket{}, &holdfast.ArgumentError{Argument: "receiver", Reason: bad}
	}
	t, err := s.hold.Detach(ctx, within)
	if err != nil {
		return Ticket{}, err
	}
	return Ticket{&t}, nil
}

// Attach goes on with the hold of a ticket that Detach of a Lock has made, of a Mutex or of a writer of an RWMutex:
// with its place in the queue, its token, and the time since it was first held, from which MaxHold counts. MinHold
// counts from the release. The other options are those of any lock; the name is the ticket's.
//
// Of all calls with one ticket one succeeds, in whatever processes. It finds out by itself if its request was carried
// out and the reply lost. It does not wait for other holders, and sends one request as a rule.
//
// An error is a *view.AcquireError, and nothing is held. It wraps a *holdfast.TicketError if the ticket was used, has
// expired or was kicked; a *holdfast.ArgumentError, before anything is sent, if it is of another kind of lock or
// another namespace; a *holdfast.LostError if the session loses its lease meanwhile; otherwise ctx's error, or etcd's.
// If it Is holdfast.ErrOutcomeUnknown, too, the ticket may be used; if it is, the session removes the entry.
func Attach(ctx context.Context, sess *session.Session, t Ticket, o Options) (*Lock, error) {
	return lockOf(attach(ctx, sess, t, o, holdfast.KindLock, false))
}

// AttachRead is Attach for a ticket of a ReadLock.
func AttachRead(ctx context.Context, sess *session.Session, t Ticket, o Options) (*ReadLock, error) {
	return readLockOf(attach(ctx, sess, t, o, holdfast.KindLock, true))
}

// AttachPermit is Attach for a ticket of a Permit.
func AttachPermit(ctx context.Context, sess *session.Session, t Ticket, o Options) (*Permit, error) {
	h, err := attach(ctx, sess, t, o, holdfast.KindSemaphore, false)
	if err != nil {
		return nil, err
	}
	return &Permit{single{h}, layout.WeightOf(h.hold.Key())}, nil
}

func attach(
	ctx context.Context, sess *session.Session, t Ticket, o Options, kind holdfast.Kind, reads bool,
) (handle, error) {
	q := queue.OfTicket(lease.Open(sess), t.whole())
	lock := kind == holdfast.KindLock
	n := named{queues: queue.Set{q}, opts: o, keeps: lock && !reads, shares: lock}
	bad := n.check()
	switch {
	case ctx == nil:
		bad = &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	case bad == nil && q.Err() == nil && (q.Kind() != kind || q.Reader != reads):
		bad = &holdfast.ArgumentError{Argument: "ticket", Reason: fmt.Sprintf("is of a %v: use the function for that", t)}
	}
	if bad != nil {
		return handle{}, n.failed(0, bad)
	}
	start := time.Now()
	h, err := hold.Attach(ctx, q, t.whole(), hold.Request{
		Request: queue.Request{Owner: o.Owner}, MinHold: o.MinHold, MaxHold: o.MaxHold, Auditor: o.Auditor,
	})
	if err != nil {
		return handle{}, n.failed(time.Since(start), err)
	}
	if o.Reentrant {
		return n.handle(h, newOwn(h, nil)), nil
	}
	return n.handle(h, nil), nil
}

// whole returns what Attach needs; zero for the zero Ticket.
func (t Ticket) whole() (of layout.Ticket) {
	if t.of != nil {
		of = *t.of
	}
	return of
}

// Format writes String, whatever the verb is.
func (t Ticket) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// LogValue returns String.
func (t Ticket) LogValue() slog.Value { return slog.StringValue(t.String()) }

// String names the lock, and until when the ticket is good. It does not have what Attach needs.
func (t Ticket) String() string {
	of := t.whole()
	q, found := of.Queue()
	if !found {
		return "no ticket"
	}
	return fmt.Sprintf("ticket of %v, good until %s", q, of.Until.UTC().Format(time.RFC3339))
}

// MarshalText returns the ticket whole, as at most 4 KiB of letters, digits, "-" and "_". A zero Ticket is a
// *holdfast.ArgumentError.
func (t Ticket) MarshalText() ([]byte, error) {
	of := t.whole()
	if _, found := of.Queue(); !found {
		return nil, &holdfast.ArgumentError{Argument: "ticket", Reason: "is a zero value: it comes from Detach"}
	}
	return []byte(of.Encode()), nil
}

// UnmarshalText reads what MarshalText has written. Other text is a *holdfast.ArgumentError. It does not ask etcd
// whether the ticket is still good.
func (t *Ticket) UnmarshalText(text []byte) error {
	of, bad := layout.DecodeTicket(text)
	if bad != "" {
		return &holdfast.ArgumentError{Argument: "text", Reason: bad}
	}
	t.of = &of
	return nil
}
