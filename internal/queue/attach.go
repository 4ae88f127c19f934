package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// A detached entry stands, with its claim, on a lease of its own, and a ticket names it. Attach puts both on the leases
// of a session. Their create revision stays, and so do the place and the token. Package hold has Detach.
// tests/models/attachmodel has the rules, and searches all interleavings.

// errTicketInUse: another call of this session has the ticket, or the sweeper still looks after its entry.
var errTicketInUse = errors.New("this session attaches the ticket already, or removes what an earlier call has left")

// OfTicket returns the queue of a ticket's entry, as a session uses it.
func OfTicket(host *lease.Host, t layout.Ticket) *Queue {
	at, found := t.Queue()
	q := New(host, at.Kind, at.Name)
	bad := func(reason string) { q.err = &holdfast.ArgumentError{Argument: "ticket", Reason: reason} }
	switch {
	case !found:
		bad("is a zero value: it comes from Detach")
	case host == nil:
	case host.Namespace != t.Namespace:
		bad(fmt.Sprintf("is of namespace %q, and the session of %q", t.Namespace, host.Namespace))
	case layout.IsReader(t.Key):
		q = q.Readers()
	}
	return q
}

// attaching is an attempt that puts no entry: it moves the entry of a ticket to this session.
type attaching struct {
	*attempt
	*entry
	ticket  layout.Ticket
	is      bool // the key is registered: no other call of this session attaches
	unknown bool // a copy may have been carried out, or may be yet
}

// Attach moves the entry of a ticket to the session of its queue, and returns its grant. Of all calls with one ticket
// one succeeds. Errors: a *holdfast.TicketError; ctx's; holdfast.ErrClosed; the *holdfast.LostError of the session's
// lease; etcd's where a retry cannot help. With an error that Is holdfast.ErrOutcomeUnknown the ticket may be used; if
// it is, the session removes the entry.
func Attach(ctx context.Context, q *Queue, t layout.Ticket, r Request) (_ *Grant, err error) {
	if err := (Set{q}).usable(ctx); err != nil {
		return nil, err
	}
	ctx, r.telemetry = q.host.Telemetry.Acquire(ctx, q.At.Kind, q.At.Name)
	defer func() {
		if err != nil {
			r.reportFailure(ctx, err)
		}
	}()
	l, err := q.host.Await(ctx)
	if err != nil {
		return nil, lease.EndedBy(ctx, q.host.Env, err)
	}
	a := newAttaching(q, l, t, r)
	err = lease.RetryUnder(ctx, q.host.Env, l, a.try)
	if err == nil && (ctx.Err() != nil || !a.mayHold()) { // the session is suspended, or the reply was late
		err = a.awaitFront(ctx)
	}
	if err == nil {
		// It is no step of an attempt, so no observer is told.
		a.Granted = Granted{q.host, a.Modified, a.revision, a.attempt.readSent, r.telemetry}
		return a.entry, nil
	}
	if !a.is { // it has sent nothing, and its line has no other caller
		return nil, lease.EndedBy(ctx, q.host.Env, err)
	}
	switch {
	case errors.Is(err, ErrEntryGone): // by hand, or to an administrator, since the reply
		err = &holdfast.TicketError{End: holdfast.TicketUsed, Until: t.Until}
	case a.stage >= placed:
		err = fmt.Errorf("%w; the ticket is used, and its entry is removed", err)
	}
	giveUp([]*caller{a.caller}, a.attempt)
	if err = lease.EndedBy(ctx, q.host.Env, err); a.unknown && !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w; the ticket is used, and the session removes the entry, or it is good until %v",
			holdfast.ErrOutcomeUnknown, err, t.Until)
	}
	return nil, err
}

// newAttaching returns the attempt to attach the entry of a ticket. Its caller has a line of its own: other goroutines
// of the session wait behind the entry, as other sessions do.
func newAttaching(q *Queue, l *lease.Lease, t layout.Ticket, r Request) *attaching {
	c, key := newCaller(q, r), t.Key
	c.alone = true
	q.shared.lines.join(c)
	a := &attempt{lease: l, q: q, attaches: true}
	e := &a.only
	e.Queue, e.of, e.caller, e.Lease = q, a, c, l
	e.entryKeys = entryKeys{Key: key, Claim: q.claimKey(key), home: q.At.PermitOf(key)} // without an id: see entryKeys
	v, _ := layout.DecodeValue([]byte(q.entryValue(r)))
	v.Queued, v.Held = t.Queued, t.Held
	e.Value, e.Created, e.Token = v.Encode(), t.Created, t.Token
	if q.At.Kind == holdfast.KindSemaphore {
		e.permit = &permit{e: e, turn: q.At.IsTurn(key), next: next{hold: true}}
	}
	a.entries = append(a.room[:0], e)
	return &attaching{attempt: a, entry: e, ticket: t}
}

// try sends the Txn once.
func (a *attaching) try(ctx context.Context) error {
	e, gate, began := a.entry, a.lease.Gate(), a.q.host.Clock()
	a.is = a.is || e.Queue.shared.keys.Register(e.home, a.lease, e)
	reads := []clientv3.Op{clientv3.OpGet(e.Key), Meta(a.lease.Key())} // of a key alone, etcd 3.7 does not tell the lease
	if !a.is {
		r, err := requests.ReadAll(ctx, e.Queue.host.Sender, reads...)
		if err != nil {
			return err
		}
		return a.refused(ctx, r, began)
	}
	says := layout.Claim{
		LockDelay: e.Queue.host.LockDelay, ToldWithin: e.Queue.shared.toldWithin, Session: a.lease.ID(),
	}
	putClaim := clientv3.OpPut(e.Claim, says.Encode(), clientv3.WithLease(a.lease.Claims))
	rctx, cancel := lease.ForRequest(ctx, a.lease, lease.GiveUpWait)
	defer cancel()
	// etcd carries out one copy, of whatever session: it changes the mod revision that all of them compare:
	//
	//	rev 10  A puts E and C: E on A's L1, C on A's L2
	//	rev 20  A detaches: both are put on D, a lease that nothing renews. The ticket has mod(E) = 20
	//	rev 30  B attaches: If mod(E) = 20, mod(B's session key) = gate  Then E is put on B's L1, C on B's L2
	//	        another copy, of B or of another session, compares mod(E) = 20, and does nothing
	r, err := e.Commit(rctx, requests.Txn{
		If: []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(e.Key), "=", a.ticket.Mod),
			clientv3.Compare(clientv3.ModRevision(a.lease.Key()), "=", gate),
		},
		Then: []clientv3.Op{
			clientv3.OpPut(e.Key, e.Value, clientv3.WithLease(a.lease.ID())),
			// A claim that was deleted by hand is not put anew: with another create revision it would look dead.
			clientv3.OpTxn([]clientv3.Cmp{createdAt(e.Claim, e.Created)}, []clientv3.Op{putClaim}, nil),
		},
		Else: reads,
	})
	if e.Queue.ReportUnknown("move", err) || r.Unanswered {
		a.unansweredAt, a.unknown = gate, true
	}
	switch {
	case etcderr.Classify(err) == etcderr.LeaseGone:
		e.Queue.host.LeaseGone(ctx, a.lease, err)
		return retry.Final(a.lease.Lost())
	case err != nil:
		return err
	case r.Succeeded:
		a.moved(r.Header.Revision, r.Header.Revision, began)
		return nil
	default:
		return a.refused(ctx, r, began)
	}
}

// moved records that the entry was put on the session's leases at a revision, by a reply to a request sent then.
func (a *attaching) moved(mod, read int64, sent time.Duration) {
	a.entry.reach(placed)
	a.Modified, a.revision, a.attempt.readSent, a.unknown = mod, read, sent, false
}

// refused says why the Txn did nothing. nil: a copy of it was carried out before.
func (a *attaching) refused(ctx context.Context, r requests.Reply, sent time.Duration) error {
	kv, key := r.First(0), r.First(1)
	stands := a.entry.Is(kv)
	isGood := stands && kv.ModRevision == a.ticket.Mod
	switch {
	case isGood && !a.is:
		return retry.Again(errTicketInUse)
	case isGood && key == nil: // the session finds out why
		return retry.Again(errKeyGone)
	case isGood:
		a.lease.NoteGate(key.ModRevision)
		return retry.Again(errSendAgain)
	case stands && a.is && kv.Lease == int64(a.lease.ID()): // by a copy without a reply
		a.moved(kv.ModRevision, r.Header.Revision, sent)
		if string(kv.Value) != a.entry.Value { // an administrator wants it back; no poll would tell, since this is known now
			return ErrEntryGone
		}
		return nil
	}
	end, err := a.end(ctx, stands)
	if err != nil {
		return err
	}
	a.unknown = false // no copy can be carried out any more: mod revisions only grow
	return retry.Final(&holdfast.TicketError{End: end, Until: a.ticket.Until})
}

// end says how a ticket has ended whose entry stands no more as the ticket has it.
func (a *attaching) end(ctx context.Context, stands bool) (holdfast.TicketEnd, error) {
	if stands {
		return holdfast.TicketUsed, nil
	}
	host := a.entry.Queue.host
	resp, err := requests.Ask(ctx, host.Sender, requests.Read,
		func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return host.Client.TimeToLive(ctx, a.ticket.Lease)
		})
	switch {
	case err != nil:
		return "", err
	case resp.TTL >= 0: // the ticket's lease stands, so the entry has left it
		return holdfast.TicketUsed, nil
	case time.Now().Before(a.ticket.Until): // by the clocks of two processes, perhaps
		return holdfast.TicketKicked, nil
	default:
		return holdfast.TicketExpired, nil
	}
}
