package hold

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
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/view"
)

// RecordRun records for h that its job has run, and only while h holds the name of q. The job is due again within that
// time; 0: it is not known when. RecordRun tries until ctx ends.
func RecordRun(ctx context.Context, q *queue.Queue, h fencing.Holder, slot string, within time.Duration) error {
	if err := errors.Join(usable(q), check(slot, within)); err != nil {
		return err
	}
	now := time.Now()
	who := q.Host().Identity()
	r := view.Run{
		Slot: slot, At: layout.Millis(now), Token: h.Token(), Owner: who.Owner, Host: who.Host, PID: who.PID,
	}
	if within > 0 {
		r.Due = layout.Millis(now.Add(within))
	}
	value, err := layout.EncodeRun(r)
	if err != nil {
		return err
	}
	err = q.WhileOpen(ctx, func(ctx context.Context) error {
		return lease.Retry(ctx, q.Host(), func(ctx context.Context) error { return try(ctx, q, h, value) })
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
func try(ctx context.Context, q *queue.Queue, h fencing.Holder, value string) error {
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
	ctx, cancel := context.WithTimeout(ctx, q.Host().RetryPolicy().Attempt)
	defer cancel()
	unchanged := clientv3.Compare(clientv3.ModRevision(q.Layout().RunKey()), "=", mod)
	w := etcdfence.NewWriter(h).With(etcdfence.WriterOptions{Auditor: audit.Log(q.Host().Logger())})
	put, err := w.Txn(ctx).If(unchanged).Then(clientv3.OpPut(q.Layout().RunKey(), value)).Commit()
	switch {
	case errors.Is(err, fencing.ErrStale): // the refusal has ended the hold
		return retry.Final(errors.Join(err, h.Check()))
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

// LastRun reads the last recorded run for the name of q, the zero Run if there is none, and reports it as a
// metric.
func LastRun(ctx context.Context, q *queue.Queue) (r view.Run, err error) {
	if err := usable(q); err != nil {
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
	resp, err := q.Host().Sender().Get(ctx, clientv3.OpGet(q.Layout().RunKey()))
	if err != nil {
		return nil, err
	}
	return requests.First(resp.Kvs), nil
}

func report(q *queue.Queue, r view.Run) {
	q.Host().Telemetry().Ran(q.Kind(), q.Name(), r.At, r.Due)
}

// usable reports why no run can be recorded for the name of q, or nil. Below a foreign prefix etcd's own clients would
// take the record for an entry, and wait for it.
func usable(q *queue.Queue) error {
	if err := q.Err(); err != nil || !q.Layout().Foreign {
		return err
	}
	return &holdfast.ArgumentError{
		Argument: "receiver", Reason: "is of a foreign prefix, below which every key is an entry: no run can be recorded",
	}
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
