package lastrun

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

// Record records that a recurring job has run under lk: when, by which process, and its slot, which says which run it
// was, such as "2026-03-29". lk is an *election.Term or a lock with a token, also a tree lock. The next run is due
// within that time; 0: it is not known when. Call Record when the work is done.
//
// It tries until ctx ends, and costs one read and one write. Errors:
//
//   - *holdfast.ArgumentError: lk is of a foreign prefix or of a shard, or no lock or term of this module; a slot of
//     more than 256 bytes, or one that is not UTF-8; a negative time. Nothing was sent.
//   - holdfast.ErrLost, holdfast.ErrReleased: the hold had ended, and no record of the run was found.
//   - holdfast.ErrOutcomeUnknown, ctx's, holdfast.ErrClosed, or that of etcd: the run may have been recorded, and Read
//     tells.
func Record(ctx context.Context, lk fencing.Holder, slot string, within time.Duration) error {
	h, ours := requests.Behind(lk).(*hold.Hold)
	if !ours {
		return &holdfast.ArgumentError{Argument: "lk", Reason: "is nil, or no lock or term of holdfast"}
	}
	q := h.Queue()
	if err := errors.Join(usable("lk", q), check(slot, within)); err != nil {
		return err
	}
	now := time.Now()
	who := q.Host().Identity
	r := view.Run{
		Slot: slot, At: layout.Millis(now), Token: lk.Token(), Owner: who.Owner, Host: who.Host, PID: who.PID,
	}
	if within > 0 {
		r.Due = layout.Millis(now.Add(within))
	}
	value, err := layout.EncodeRun(r)
	if err != nil {
		return err
	}
	err = q.WhileOpen(ctx, func(open context.Context) error {
		err := lease.Retry(open, q.Host().Env, func(ctx context.Context) error { return try(ctx, q, lk, value) })
		if ctx.Err() != nil { // perhaps by a loss, also of another lock: it does not say what was recorded
			err = retry.OfCaller(ctx, err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("record the run of %v: %w", q, err)
	}
	report(q, r)
	return nil
}

// try puts the value, unless an earlier try has put it. Each put compares the record read just before it:
//
//	rev 10  the record of run 1
//	        run 2 reads it, and sends a put that compares mod = 10; its reply is lost
//	rev 14  run 2 reads again, and puts its record, comparing mod = 10; its first copy arrives, and does nothing
func try(ctx context.Context, q *queue.Queue, lk fencing.Holder, value string) error {
	kv, err := get(ctx, q)
	if err != nil {
		return err
	}
	var mod int64
	if kv != nil {
		if string(kv.Value) == value {
			return nil
		}
		mod = kv.ModRevision
	}
	ctx, cancel := context.WithTimeout(ctx, requests.Patience)
	defer cancel()
	unchanged := clientv3.Compare(clientv3.ModRevision(q.Layout().RunKey()), "=", mod)
	w := etcdfence.NewWriter(lk).With(etcdfence.WriterOptions{Auditor: audit.Log(q.Host().Logger)})
	put, err := w.Txn(ctx).If(unchanged).Then(clientv3.OpPut(q.Layout().RunKey(), value)).Commit()
	switch {
	case errors.Is(err, fencing.ErrStale): // the refusal has ended the hold
		return retry.Final(errors.Join(err, lk.Check()))
	case errors.Is(err, holdfast.ErrLost):
		return retry.Final(err)
	case errors.Is(err, holdfast.ErrSuspended), errors.Is(err, holdfast.ErrOutcomeUnknown):
		return retry.Again(err)
	case err == nil && !put.Succeeded:
		return retry.Again(errMoved)
	default:
		return err
	}
}

var errMoved = errors.New("another record was put meanwhile")

// Read reads the last run that was recorded for a name: by one request, and without the lock. It is the zero Run if
// nothing is recorded. kind is [holdfast.KindLock], also for a locker.RWMutex, [holdfast.KindTree] or
// [holdfast.KindElection].
//
// Errors: *holdfast.ArgumentError and *holdfast.NameError before anything is sent; ctx's; holdfast.ErrClosed; that of
// etcd; or that the key has a value that holdfast has not written.
func Read(ctx context.Context, sess *session.Session, kind holdfast.Kind, name string) (r view.Run, err error) {
	q := queue.New(lease.Open(sess), kind, name)
	if err := usable("kind", q); err != nil {
		return view.Run{}, err
	}
	var kv *mvccpb.KeyValue
	err = q.WhileOpen(ctx, func(ctx context.Context) (err error) {
		kv, err = get(ctx, q)
		return err
	})
	switch {
	case err != nil:
		return view.Run{}, fmt.Errorf("read the last run of %v: %w", q, err)
	case kv == nil:
		return view.Run{}, nil
	}
	r, ok := layout.RunIn(kv)
	if !ok {
		return view.Run{}, fmt.Errorf("the last run of %v at %s is %.64q, which holdfast has not written: delete it",
			q, names.Quote(string(kv.Key)), kv.Value)
	}
	report(q, r)
	return r, nil
}

// get reads the record; nil if there is none.
func get(ctx context.Context, q *queue.Queue) (*mvccpb.KeyValue, error) {
	resp, err := q.Host().Sender.Get(ctx, clientv3.OpGet(q.Layout().RunKey()))
	if err != nil {
		return nil, err
	}
	return requests.First(resp.Kvs), nil
}

func report(q *queue.Queue, r view.Run) {
	q.Host().Telemetry.Ran(q.Kind(), q.Name(), r.At, r.Due)
}

// usable reports why no run can be recorded for the name of q, or nil; the argument says what it is of. Below a foreign
// prefix etcd's own clients would take the record for an entry, and wait for it.
func usable(argument string, q *queue.Queue) error {
	bad := func(reason string) error { return &holdfast.ArgumentError{Argument: argument, Reason: reason} }
	switch q.Kind() {
	case holdfast.KindLock, holdfast.KindTree, holdfast.KindElection:
	default:
		return bad(fmt.Sprintf("is %q: runs are recorded for locks, trees and elections", string(q.Kind())))
	}
	if q.Layout().Foreign {
		return bad("is of a foreign prefix, below which every key is an entry: no run can be recorded")
	}
	return q.Err()
}

func check(slot string, within time.Duration) error {
	switch {
	case len(slot) > layout.MaxText:
		return &holdfast.ArgumentError{Argument: "slot", Reason: fmt.Sprintf("is longer than %d bytes", layout.MaxText)}
	case !utf8.ValidString(slot):
		return &holdfast.ArgumentError{Argument: "slot", Reason: "is not UTF-8"}
	case within < 0:
		return &holdfast.ArgumentError{Argument: "within", Reason: "is negative"}
	default:
		return nil
	}
}
