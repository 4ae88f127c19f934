package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

var (
	// errSendAgain: the put was refused, and the reason is out of the way now.
	errSendAgain = errors.New("the put of an entry is to be sent again")
	// errKeyGone: the session key does not exist, or only in an older version, from a backup.
	errKeyGone = errors.New("the session key is missing, or older than the session knows it")
)

// put sends the put of the entries of the attempt once. As a rule the reply names the entry ahead of each; otherwise a
// look does. It returns ctx's error, ErrOccupied, ErrCondition, ErrEntryGone (another client deleted a.after or one of
// these entries), or etcd's error. After an error putAgain must follow.
func (a *attempt) put(ctx context.Context) error {
	if a.entries[0].stage >= created {
		return nil // by a hand-off
	}
	// Requests go on after ctx has ended, because the entry of an answered put can be removed by its revision. Otherwise
	// it needs the sweeper.
	rctx, cancel := lease.ForRequest(ctx, a.lease, lease.GiveUpWait)
	defer cancel()
	if a.q.limit != 0 && a.after == nil { // a turn for a permit does not wait: until it is put, more permits are
		select {
		case a.q.shared.permitPuts <- struct{}{}:
			defer func() { <-a.q.shared.permitPuts }()
		case <-rctx.Done():
			return retry.ContextErr(rctx)
		}
	}
	p, began := a.putting(), a.q.host.Clock()
	for _, e := range a.entries {
		e.say(lease.Sends, lease.EntryStep{Gate: p.gate})
	}
	r, err := a.q.shared.commits.Commit(rctx, p.Txn)
	// A replaced KV repeats a put by itself, and its first copy may come when the entry has been released:
	//
	//	rev 10  the second copy puts the entry
	//	rev 12  the entry is released
	//	rev 15  the first copy would put it again; by then the sweeper has put the session key: it does nothing
	if r.Unanswered || a.q.host.Sender.RepeatsUnnoticed() {
		a.unansweredAt = p.gate
	}
	if r.Succeeded {
		a.revision, a.readSent = r.Header.Revision, began
		err = a.wasPut(p, r)
	} else {
		err = a.wasNotPut(rctx, p, r, err)
	}
	if err == nil {
		telemetry.Queued(ctx, a.entries[0].position)
	}
	return err
}

// putAgain sends the put again after an error of put, until it succeeds or fails for good, or ctx ends. The entries are
// put once, however often the request is sent.
func (a *attempt) putAgain(ctx context.Context, err error) error {
	try := func(context.Context) error {
		err := errSendAgain
		for errors.Is(err, errSendAgain) {
			if err = retry.ContextErr(ctx); err == nil {
				err = a.put(ctx)
			}
		}
		return err
	}
	if errors.Is(err, errSendAgain) {
		return lease.RetryUnder(ctx, a.q.host.Env, a.lease, try) // at once: its reason is out of the way
	}
	return lease.RetryAfter(ctx, a.q.host.Env, a.lease, err, try)
}

// putting is the Txn for the entries of an attempt. The session key's mod revision is the gate: once the sweeper has
// put this key again, a late copy does nothing.
type putting struct {
	requests.Txn
	gate  int64
	first int // the first reply about what is ahead
	epoch int // the reply with the epoch; a permit's own reply follows
}

// putting builds the Txn. Each entry and its claim are put together, so they have one create revision.
func (a *attempt) putting() putting {
	n := len(a.entries)
	p := putting{gate: a.lease.Gate()}
	session := clientv3.ModRevision(a.lease.Key())
	p.If = append(make([]clientv3.Cmp, 0, 3*n+2), clientv3.Compare(session, "=", p.gate))
	p.If = append(p.If, a.entries[0].caller.request.If...)
	// The operations of a Txn see what those before them did: the removal, then the reads of what is ahead, then the
	// puts.
	p.Then = make([]clientv3.Op, 0, 3*n+3)
	if a.after != nil {
		p.If = append(p.If, a.after.Holding())
		p.Then = a.after.deletions(p.Then)
	}
	p.first = len(p.Then)
	for _, e := range a.entries {
		if a.needsEmpty() {
			// etcd loads every key of the range for this, so it is only asked after a read has found the queue empty.
			from, end := e.Queue.conflicting()
			p.If = append(p.If, clientv3.Compare(clientv3.CreateRevision(from).WithRange(end), "=", 0))
		}
		p.If = e.absent(p.If)
		if e.permit == nil { // a permit's own Txn reads what is ahead
			p.Then = append(p.Then, e.Queue.youngest...)
		}
	}
	p.epoch = len(p.Then)
	p.Then = append(p.Then, a.q.shared.getEpoch)
	for _, e := range a.entries {
		if e.permit == nil {
			p.Then = e.puts(p.Then, e.Key, e.Claim)
		} else {
			p.Then = append(p.Then, e.permit.putting())
		}
	}
	if !a.q.At.Foreign && n == 1 && a.q.limit == 0 { // foreign prefixes may contain each other
		p.About = a.q.At.Entries
	}
	return p
}

// needsEmpty reports whether the put needs empty queues. A permit needs room, and its own Txn says whether there is.
func (a *attempt) needsEmpty() bool { return a.entries[0].caller.request.Try && a.q.limit == 0 }

// absent adds the comparisons of the put of an entry.
func (e *entry) absent(to []clientv3.Cmp) []clientv3.Cmp {
	to = append(to, createdAt(e.Key, 0))
	if permit := e.permit; permit != nil {
		to = permit.absent(to)
	}
	if e.Claim == "" {
		return to
	}
	// A late copy must not put the entry anew over its old claim: etcd keeps the claim's create revision, so the claim
	// would lie ahead of a waiter, and the entry behind it.
	//
	//	rev 10  the put is carried out, and its reply is lost; a copy is on its way
	//	rev 12  the entry is deleted by hand
	//	rev 15  another client puts, and waits for the claim of rev 10
	//	        the copy arrives: without this comparison the entry has create revision 16, its claim still 10
	return append(to, createdAt(e.Claim, 0))
}

// puts adds the puts of an entry and of its claim at those keys.
func (e *entry) puts(to []clientv3.Op, key, claim string) []clientv3.Op {
	to = append(to, clientv3.OpPut(key, e.Value, clientv3.WithLease(e.Lease.ID())))
	if claim == "" {
		return to
	}
	return append(to, clientv3.OpPut(claim, e.Queue.shared.claimValue, clientv3.WithLease(e.Lease.Claims)))
}

// wasNotPut takes the reply to a put without a success, or its error. nil: a read shows that the put was carried out.
func (a *attempt) wasNotPut(ctx context.Context, p putting, r requests.Reply, err error) error {
	class := etcderr.Classify(err)
	if err == nil || r.Unanswered || class == etcderr.Unknown {
		for _, e := range a.entries {
			e.reach(sent)
		}
	}
	switch {
	case class == etcderr.LeaseGone: // etcd has told this attempt before the session
		a.q.host.LeaseGone(ctx, a.lease, err)
		return err
	case errors.Is(err, rpctypes.ErrPermissionDenied) && a.dropClaims():
		return errSendAgain
	case err != nil:
		// If commits take 7 s and more, etcd answers "request timed out", and carries the put out all the same. Another put
		// would get the same answer; a read finds the entry.
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

// dropClaims has entries below foreign prefixes be put without claims, since the role may not write where these stand.
// It reports false if nothing changes.
func (a *attempt) dropClaims() (dropped bool) {
	for _, e := range a.entries {
		if e.Queue.At.Foreign && !e.Queue.Unclaimed {
			e.Queue, e.Claim, dropped = e.Queue.withoutClaims(), "", true
		}
	}
	return dropped
}

// wasPut takes the reply to a put that was carried out.
func (a *attempt) wasPut(p putting, r requests.Reply) (err error) {
	if permit := a.entries[0].permit; permit != nil {
		return permit.wasPut(r.Inner(p.epoch + 1))
	}
	at := p.first
	for _, e := range a.entries {
		if e.Queue.Unclaimed {
			e.Queue.shared.noteUnclaimed(e.Queue.At)
		}
		e.ahead, e.claims, e.position = e.Queue.before(r, at)
		at += len(e.Queue.youngest)
		e.setCreated(r.Header.Revision)
		if len(e.claims) == 0 { // otherwise the next look reads what they say
			e.place(r.Header.Revision, false)
		}
		if tokenErr := e.setToken(r.Range(p.epoch).Kvs); tokenErr != nil {
			err = tokenErr
		}
	}
	return err
}

// youngestKeys reads what a put needs to know: does anything conflict, and what is the youngest entry?
func (s scope) youngestKeys() []clientv3.Op {
	from, end := s.conflicting()
	claims, endOfClaims := s.conflictingClaims()
	if !s.At.Foreign {
		// Entries and claims are one range. An entry and its claim are as young as each other, so if there is an entry, it
		// is among the two youngest keys, unless two dead claims are younger.
		return []clientv3.Op{createdBefore(from, endOfClaims, 0, clientv3.WithLimit(2), youngestFirst)}
	}
	ops := []clientv3.Op{createdBefore(from, end, 0, clientv3.WithLimit(1), youngestFirst)}
	if !s.Unclaimed {
		ops = append(ops, createdBefore(claims, endOfClaims, 0, clientv3.WithLimit(1)))
	}
	return ops
}

// before takes the replies to youngestKeys, from reply i on. It returns the youngest conflicting entry, or if the reads
// show none, some conflicting claims; the oldest of these may have its entry. count is the number of entries; a dead
// claim counts as half of one.
func (s scope) before(r requests.Reply, i int) (entry *mvccpb.KeyValue, claims []deadClaim, count int64) {
	youngest := r.Range(i)
	keys, count := youngest.Kvs, youngest.Count
	switch {
	case !s.At.Foreign:
		count = (count + 1) / 2 // each entry has a claim
	case count == 0 && !s.Unclaimed:
		keys = r.Range(i + 1).Kvs
	}
	for _, kv := range keys {
		if !s.At.IsClaim(string(kv.Key)) {
			return kv, nil, count
		}
		claims = append(claims, deadClaim{key: string(kv.Key), rev: kv.CreateRevision})
	}
	return nil, claims, count
}

// findPut reads whether a copy of the put was carried out. If so, the create revision of the entries is known now. If
// an entry was deleted by hand since, its claim tells the revision, and ErrEntryGone has the attempt remove the claim.
// whyRefused takes the rest of what was read: the session key is response 1, the limit of a semaphore the last.
func (a *attempt) findPut(ctx context.Context, gate int64) (r requests.Reply, put bool, err error) {
	ask := requests.Ops{a.q.shared.getEpoch, Meta(a.lease.Key())}
	first := len(ask)
	for _, e := range a.entries {
		ask.Add(Meta(e.Key), Meta(cmp.Or(e.Claim, e.Key)))
	}
	permit := a.entries[0].permit
	if permit != nil {
		turn, claim := permit.turnKeys()
		ask.Add(Meta(turn), Meta(claim), clientv3.OpGet(a.q.At.LimitKey()))
	}
	if r, err = requests.ReadAll(ctx, a.q.host.Sender, ask...); err != nil {
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
			if tokenErr := e.setToken(r.Range(0).Kvs); tokenErr != nil {
				err = tokenErr
			}
		}
	}
	if put {
		// If all known copies were answered, etcd's client sent another, and perhaps more.
		a.unansweredAt = gate
		other := func(e *entry) bool { return e.Created != a.entries[0].Created }
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
	case key == nil || key.ModRevision < gate: // revoked, or deleted by hand: the session finds out
		return retry.Again(errKeyGone)
	case key.ModRevision > gate:
		a.lease.NoteGate(key.ModRevision)
		return errSendAgain
	case a.entries[0].permit != nil:
		limit := r.First(len(r.Responses) - 1)
		if err := a.q.changeLimit(ctx, limit, a.q.limit); err != nil {
			return err
		}
		if limit == nil || limit.ModRevision > refused {
			return errSendAgain
		}
	case a.after != nil: // another client has deleted a.after, or the entry put by an earlier copy
		return ErrEntryGone
	case a.needsEmpty():
		return ErrOccupied
	}
	// Request.If is not true; or, as above, an earlier copy had put it, and another client has deleted both keys.
	a.unansweredAt = gate
	if a.entries[0].caller.request.If != nil {
		return ErrCondition
	}
	return ErrEntryGone
}
