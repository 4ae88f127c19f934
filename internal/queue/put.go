package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

var (
	// errSendAgain: the put was refused for a reason that is known and out of the way now.
	errSendAgain = errors.New("the put of an entry is to be sent again")
	// errKeyGone: the session key does not exist, or only in an older version, from a backup.
	errKeyGone = errors.New("the session key is missing, or older than the session knows it")
)

// slowPut is the duration after which etcd's client may have sent a put twice:
// one copy may still be carried out although the other was answered.
const slowPut = time.Second

// put puts the entries of the attempt into their queues, once however often the request is sent. As a rule it finds out
// which entry is ahead of each; otherwise a look does. It returns ctx's error, ErrOccupied, ErrEntryGone (another
// client deleted a.after or one of these entries), or etcd's error.
//
// Requests get lease.GiveUpWait after ctx has ended, because the entry of an answered put can be removed by its
// revision; otherwise it needs the sweeper.
func (a *attempt) put(ctx context.Context) error {
	first := a.entries[0]
	if first.stage >= created {
		return nil // by a hand-off
	}
	rctx, cancel := lease.ForRequest(ctx, a.lease, lease.GiveUpWait)
	defer cancel()
	err := a.tryPut(rctx)
	if err != nil {
		err = a.putAgain(ctx, rctx, err)
	}
	if err == nil {
		telemetry.Queued(ctx, first.wait.position)
	}
	return err
}

// putAgain goes on after a try that failed with err, until a try succeeds or fails for good, or ctx ends.
func (a *attempt) putAgain(ctx, rctx context.Context, err error) error {
	try := func(ctx context.Context) error {
		err := errSendAgain
		for errors.Is(err, errSendAgain) {
			if err = retry.ContextErr(ctx); err == nil {
				err = a.tryPut(rctx)
			}
		}
		return err
	}
	if errors.Is(err, errSendAgain) {
		return lease.RetryUnder(ctx, a.q.host, a.lease, try)
	}
	return lease.RetryAfter(ctx, a.q.host, a.lease, err, try)
}

// putting is a Txn that puts the entries of an attempt. The session key's mod revision is the gate: a copy that etcd
// carries out after the sweeper has put that key again does nothing.
type putting struct {
	requests.Txn
	gate   int64
	claims clientv3.LeaseID
	first  int // the reply about the first entry; those about the others follow
	epoch  int
	nested bool // each entry is put by a Txn in the Txn
}

// maxFlat is the largest Set that a flat Txn puts: etcd limits one to 128 comparisons and 128 operations.
const maxFlat = 42

// putting builds the Txn. Each entry and its claim are put together, so they have one create revision.
func (a *attempt) putting(claims clientv3.LeaseID) putting {
	n, permit := len(a.entries), a.entries[0].wait.permit
	p := putting{gate: a.lease.Gate(), claims: claims, nested: n > maxFlat}
	session := clientv3.ModRevision(a.lease.Key())
	p.If = append(make([]clientv3.Cmp, 0, 3*n+2), clientv3.Compare(session, "=", p.gate))
	// The operations of a Txn see what those before them did: the removal, then the reads of what is ahead, then the puts.
	p.Then = make([]clientv3.Op, 0, 3*n+3)
	if a.after != nil {
		p.If = append(p.If, a.after.owned())
		p.Then = a.after.deletions(p.Then)
	}
	p.first = len(p.Then)
	for _, e := range a.entries {
		if a.needsEmpty() {
			// etcd loads every key of the range for this, so it is only asked after a read has found the queue empty.
			from, end := e.q.Conflicting()
			p.If = append(p.If, clientv3.Compare(clientv3.CreateRevision(from).WithRange(end), "=", 0))
		}
		switch {
		case p.nested:
			ops := e.puts(slices.Clone(e.q.youngest), e.key, e.claim, claims)
			p.Then = append(p.Then, clientv3.OpTxn(e.absent(nil), ops, nil))
		case permit != nil: // the Txn that puts it reads what is ahead
			p.If = e.absent(p.If)
		default:
			p.If, p.Then = e.absent(p.If), append(p.Then, e.q.youngest...)
		}
	}
	p.epoch = len(p.Then)
	p.Then = append(p.Then, a.q.shared.getEpoch)
	switch {
	case p.nested:
	case permit != nil:
		p.Then = append(p.Then, permit.putting(claims))
	default:
		for _, e := range a.entries {
			p.Then = e.puts(p.Then, e.key, e.claim, claims)
		}
	}
	if !a.q.At.Foreign && n == 1 && permit == nil { // foreign prefixes may contain each other
		p.About = a.q.At.Entries
	}
	return p
}

// needsEmpty reports whether the put compares that its queues are empty. The Txn of a permit says whether that fits.
func (a *attempt) needsEmpty() bool { return a.entries[0].ticket.request.Try && a.q.limit == 0 }

// absent adds the comparisons of the put of an entry.
func (e *entry) absent(to []clientv3.Cmp) []clientv3.Cmp {
	to = append(to, ahead.CreatedAt(e.key, 0))
	if permit := e.wait.permit; permit != nil {
		to = permit.absent(to)
	}
	if e.claim == "" {
		return to
	}
	// A late copy must not put the entry anew over a claim that stands: etcd keeps the claim's create revision, so the
	// claim would lie ahead of a waiter, and the entry behind it.
	//
	//	rev 10  the put is carried out, and its reply is lost; a copy is on its way
	//	rev 12  the entry is deleted by hand
	//	rev 15  another client puts, and waits for the claim of rev 10
	//	        the copy arrives: without this comparison the entry has create revision 16, its claim still 10
	return append(to, ahead.CreatedAt(e.claim, 0))
}

// puts adds the puts of an entry and of its claim at those keys.
func (e *entry) puts(to []clientv3.Op, key, claim string, claims clientv3.LeaseID) []clientv3.Op {
	to = append(to, clientv3.OpPut(key, e.value, clientv3.WithLease(e.of.lease.ID())))
	if claim == "" {
		return to
	}
	return append(to, clientv3.OpPut(claim, e.q.shared.claimValue, clientv3.WithLease(claims)))
}

// allPut reports whether a Txn with a Txn for each entry has put all. A late copy may put a part of them: another
// client has deleted those entries since.
func (p putting) allPut(r requests.Reply, entries int) bool {
	for i := range entries {
		if !r.Inner(p.first + i).Succeeded {
			return false
		}
	}
	return true
}

// tryPut sends the put once and reads its reply.
func (a *attempt) tryPut(ctx context.Context) error {
	claims, err := a.lease.AwaitClaims(ctx)
	if err != nil {
		return err
	}
	if a.q.limit != 0 && a.after == nil { // a turn for a permit does not wait: until it is put, more permits are
		leave, err := a.q.shared.semaphores.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}
	p, began := a.putting(claims), time.Now()
	for _, e := range a.entries {
		e.say(lease.Sends, lease.EntryStep{Gate: p.gate})
	}
	r, err := a.q.shared.commits.Commit(ctx, p.Txn)
	if r.Unanswered || time.Since(began) >= slowPut {
		a.unansweredAt = p.gate
	}
	if r.Succeeded && (!p.nested || p.allPut(r, len(a.entries))) {
		a.revision, a.lookSent = r.Header.Revision, began
		return a.wasPut(ctx, p, r)
	}
	class := etcderr.Classify(err)
	if err == nil || r.Unanswered || class == etcderr.Unknown {
		for _, e := range a.entries {
			e.reach(sent)
		}
	}
	switch {
	case class == etcderr.LeaseGone: // etcd has told this attempt before the session
		if a.q.host.LeaseGone(ctx, a.lease, p.claims, err) == nil {
			return retry.Again(err) // the claims' lease was gone, and another one follows
		}
		return err
	case errors.Is(err, rpctypes.ErrPermissionDenied) && a.dropClaims():
		return errSendAgain
	case err != nil:
		// A disk that takes 7 s and more for each commit has etcd answer "request timed out" for what it carries out all
		// the same. Another put would only hear that, too; a read finds the entry.
		if a.q.ReportUnknown("enqueue", err) && a.lease.Lost() == nil {
			if _, put, found := a.findPut(ctx, p.gate); put {
				return found
			}
		}
		return err
	default:
		return a.whyRefused(ctx, p.gate, r.Header.Revision)
	}
}

// dropClaims has entries below foreign prefixes be put without claims, which stand elsewhere. It reports false if that
// changes nothing.
func (a *attempt) dropClaims() (dropped bool) {
	for _, e := range a.entries {
		if e.q.At.Foreign && !e.q.Unclaimed {
			e.q, e.claim, dropped = e.q.withoutClaims(), "", true
		}
	}
	return dropped
}

// wasPut reads the reply to a put that was carried out.
func (a *attempt) wasPut(ctx context.Context, p putting, r requests.Reply) (err error) {
	if permit := a.entries[0].wait.permit; permit != nil {
		return permit.wasPut(r.Inner(p.epoch + 1))
	}
	at := p.first
	for i, e := range a.entries {
		if e.q.Unclaimed {
			e.q.shared.noteUnclaimed(e.q.At)
		}
		ahead, at0 := r, at
		if at += len(e.q.youngest); p.nested {
			ahead, at0 = r.Inner(p.first+i), 0
		}
		before := e.q.Before(ahead, at0)
		e.setCreated(r.Header.Revision)
		e.wait.position = before.Count
		if before.Free || before.Entry != nil {
			e.wait.ahead = before.Entry
			e.place(r.Header.Revision, false)
		} else {
			e.wait.claims = before.Claims // the look that follows reads what they say
		}
		if tokenErr := e.takeToken(r.Range(p.epoch).Kvs); tokenErr != nil {
			err = tokenErr
		}
	}
	return err
}

// findPut reads whether a copy of the put was carried out. If so, the create revision of the entries is known now. Of
// an entry that was deleted by hand since, the claim tells the revision, and ErrEntryGone has the attempt remove that.
// whyRefused takes the rest of what was read: the session key is response 1, the limit of a semaphore the last.
func (a *attempt) findPut(ctx context.Context, gate int64) (r requests.Reply, put bool, err error) {
	ask := requests.Ops{a.q.shared.getEpoch, ahead.Meta(a.lease.Key())}
	first := len(ask)
	for _, e := range a.entries {
		ask.Add(ahead.Meta(e.key), ahead.Meta(cmp.Or(e.claim, e.key)))
	}
	permit := a.entries[0].wait.permit
	if permit != nil {
		turn, claim := permit.turnKeys()
		ask.Add(ahead.Meta(turn), ahead.Meta(claim), clientv3.OpGet(a.q.At.LimitKey()))
	}
	if r, err = requests.ReadAll(ctx, a.q.host.Sender(), ask...); err != nil {
		a.unansweredAt = gate // as below: an earlier copy may have put them
		return r, false, err
	}
	stand := 0
	for i, e := range a.entries {
		own, claim := r.First(first+2*i), r.First(first+2*i+1)
		if permit != nil {
			own, claim = permit.found(r, first)
		}
		if own != nil {
			stand++
		}
		if either := cmp.Or(own, claim); either != nil {
			put = true
			e.setCreated(either.CreateRevision)
			if tokenErr := e.takeToken(r.Range(0).Kvs); tokenErr != nil {
				err = tokenErr
			}
		}
	}
	if put {
		// If all copies that we know of were answered, etcd's client sent one more, and perhaps others.
		a.unansweredAt = gate
		other := func(e *entry) bool { return e.rev != a.entries[0].rev }
		if stand < len(a.entries) || slices.ContainsFunc(a.entries, other) { // an earlier copy had put all at once
			return r, true, ErrEntryGone
		}
	}
	return r, put, err
}

// whyRefused reads why etcd did not carry out the put, at revision refused. nil: an earlier copy had put the entries.
func (a *attempt) whyRefused(ctx context.Context, gate int64, refused int64) error {
	r, put, err := a.findPut(ctx, gate)
	if put || err != nil {
		return err
	}
	switch key := r.First(1); {
	case key == nil || key.ModRevision < gate: // revoked, or deleted by hand: the session finds out which
		return retry.Again(errKeyGone)
	case key.ModRevision > gate:
		a.lease.SawGate(key.ModRevision)
		return errSendAgain
	case a.entries[0].wait.permit != nil:
		limit := r.First(len(r.Responses) - 1)
		if err := a.q.ensureLimit(ctx, limit); err != nil {
			return err
		}
		if limit == nil || limit.ModRevision > refused {
			return errSendAgain
		}
	case a.after != nil: // another client has deleted a.after, or the entry that an earlier copy had put
		return ErrEntryGone
	case a.needsEmpty():
		return ErrOccupied
	}
	a.unansweredAt = gate // as above: an earlier copy had put it, and another client has deleted both keys
	return ErrEntryGone
}
