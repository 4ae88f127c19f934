package queue

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/txns"
	"github.com/holdfast-go/holdfast/view"
)

// RecordRun records for h, and only while h holds this name, that its job has run and is due again within that time; 0:
// it is not known when. It tries until ctx ends.
func (q *Queue) RecordRun(ctx context.Context, h fencing.Holder, slot string, within time.Duration) error {
	if err := q.usable(ctx); err != nil {
		return err
	}
	now := time.Now()
	who := q.host.Identity()
	r := view.Run{
		Slot: slot, At: layout.Millis(now), Token: h.Token(), Owner: who.Owner, Host: who.Host, PID: who.PID,
	}
	if within > 0 {
		r.Due = layout.Millis(now.Add(within))
	}
	if err := errors.Join(q.keepsRuns(), checkRun(slot, within)); err != nil {
		return err
	}
	value, err := layout.EncodeRun(r)
	if err != nil {
		return err
	}
	open, cancel := withSession(ctx, q.host)
	defer cancel()
	err = q.retry(open, func(ctx context.Context) error { return q.tryRecord(ctx, h, value) })
	if err != nil {
		return fmt.Errorf("record the run of %v: %w", q, q.closedErr(ctx, err))
	}
	q.host.Telemetry().Ran(q.at.Kind, q.at.Name, r.At, r.Due)
	return nil
}

// tryRecord puts the value, unless an earlier try has put it. Each put compares what was read just before it: so a copy
// that arrives late does not replace what a later call has put.
func (q *Queue) tryRecord(ctx context.Context, h fencing.Holder, value string) error {
	key := q.at.RunKey()
	resp, err := q.get(ctx, clientv3.OpGet(key))
	if err != nil {
		return err
	}
	var mod int64
	if kv := txns.First(resp.Kvs); kv != nil {
		if string(kv.Value) == value {
			return nil
		}
		mod = kv.ModRevision
	}
	ctx, cancel := context.WithTimeout(ctx, q.host.RetryPolicy().Attempt)
	defer cancel()
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", mod)
	w := fencing.NewFencedWriter(h).With(fencing.WriterOptions{Auditor: audit.Log(q.host.Logger())})
	put, err := w.Txn(ctx).If(unchanged).Then(clientv3.OpPut(key, value)).Commit()
	switch {
	case errors.Is(err, fencing.ErrStale): // that has ended the hold
		return backoff.Final(errors.Join(err, h.Check()))
	case errors.Is(err, holdfast.ErrLost):
		return backoff.Final(err)
	case errors.Is(err, holdfast.ErrSuspended), errors.Is(err, holdfast.ErrOutcomeUnknown):
		return backoff.Again(err)
	case err == nil && !put.Succeeded:
		return backoff.Again(errRunMoved)
	default:
		return err
	}
}

var errRunMoved = errors.New("another record was put meanwhile")

// LastRun reads the last run that was recorded for this name, the zero Run if there is none. It reports it as a metric.
func (q *Queue) LastRun(ctx context.Context) (view.Run, error) {
	if err := q.usable(ctx); err != nil {
		return view.Run{}, err
	}
	if err := q.keepsRuns(); err != nil {
		return view.Run{}, err
	}
	open, cancel := withSession(ctx, q.host)
	defer cancel()
	resp, err := q.get(open, clientv3.OpGet(q.at.RunKey()))
	if err != nil {
		return view.Run{}, fmt.Errorf("read the last run of %v: %w", q, q.closedErr(ctx, err))
	}
	kv := txns.First(resp.Kvs)
	if kv == nil {
		return view.Run{}, nil
	}
	r, ok := layout.RunIn(kv)
	if !ok {
		return view.Run{}, fmt.Errorf("the last run of %v at %s is %.64q, which holdfast has not written: delete it",
			q, names.Quote(string(kv.Key)), kv.Value)
	}
	q.host.Telemetry().Ran(q.at.Kind, q.at.Name, r.At, r.Due)
	return r, nil
}

// keepsRuns reports why no run can be recorded for this name, or nil. Below a foreign prefix etcd's own clients would
// take the record for an entry, and wait for it.
func (q *Queue) keepsRuns() error {
	if !q.at.Foreign {
		return nil
	}
	return &holdfast.ArgumentError{
		Argument: "receiver", Reason: "is of a foreign prefix, below which every key is an entry: no run can be recorded",
	}
}

func checkRun(slot string, within time.Duration) error {
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
