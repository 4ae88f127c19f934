package fencing

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/stale"
)

// MaxOps is the largest number of comparisons, of Then operations or of Else
// operations in one transaction of a [FencedWriter]: etcd's default limit, less
// the level that the fence takes. Transactions nested deeper share what the
// level above leaves.
const MaxOps = 127

// Mistakes in a request, found before it is sent.
var (
	// ErrEmptyKey: etcd has no empty key.
	ErrEmptyKey = errors.New("key is empty")

	// ErrTooManyOps: more than [MaxOps].
	ErrTooManyOps = errors.New("too many operations in one transaction")

	// ErrTxnMisuse: If, Then and Else may be called once each, in that order,
	// Commit once, and each operation must come from a function of clientv3.
	ErrTxnMisuse = errors.New("misuse of a transaction")
)

// FencedWriter writes to etcd on behalf of a holder, and only while its entry
// stands: each write carries the holder's comparison and is one RPC. It may be
// used by any number of goroutines.
//
// Before anything is sent, a write is refused if its context has ended or the
// holder's Check fails; the error wraps that one. The state of a holder that is
// merely suspended is dealt with as [Options].WhileSuspended says. After that,
// what a write returns tells what happened to it:
//
//   - nil: it took effect, and the holder was the holder when it did.
//   - [ErrStale]: etcd compared and refused; it had no effect. A lock or term is
//     lost from then on: its Check says so, and its contexts are done. See the
//     package documentation for the one case in which the client below sends
//     twice.
//   - holdfast.ErrOutcomeUnknown: it was sent and not answered; it may have taken
//     effect, may take effect as long as the holder's entry stands, or may be
//     lost. The cause is joined to it, with the context's error and its cause.
//     The writer does not send again, since a first attempt that is late could
//     then overwrite a write made after it.
//   - any other error: it was refused and had no effect ([ErrNotDone]).
//
// A key does not go away with the lock. One that should, has to be put with
// clientv3.WithLease and the holder's lease.
type FencedWriter struct {
	holder Holder // nil: every write returns ErrNoToken
	opts   Options
}

// NewFencedWriter returns a writer for h with the default options. A nil h makes
// every write return [ErrNoToken].
func NewFencedWriter(h Holder) *FencedWriter {
	if isNil(h) {
		h = nil
	}
	return &FencedWriter{holder: h}
}

// With returns a copy of w with the given options.
func (w *FencedWriter) With(o Options) *FencedWriter {
	return &FencedWriter{holder: w.holder, opts: o}
}

// Put puts key, as clientv3's Put does with the same options. An empty key is
// refused with [ErrEmptyKey]; for all other errors see [FencedWriter].
func (w *FencedWriter) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	r := w.request("put", key)
	if key == "" {
		return nil, r.refuse(ErrEmptyKey)
	}
	resp, err := r.send(ctx, clientv3.OpPut(key, val, opts...))
	if err != nil {
		return nil, err
	}
	put := resp.Responses[0].GetResponsePut()
	if put == nil {
		return nil, r.malformed()
	}
	put.Header = resp.Header
	return (*clientv3.PutResponse)(put), nil
}

// Delete deletes key, or with clientv3's options a range that begins with it. An
// empty key is refused with [ErrEmptyKey], options or not, since it would mean
// all of etcd; for all other errors see [FencedWriter].
func (w *FencedWriter) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	r := w.request("delete", key)
	if key == "" {
		return nil, r.refuse(ErrEmptyKey)
	}
	resp, err := r.send(ctx, clientv3.OpDelete(key, opts...))
	if err != nil {
		return nil, err
	}
	del := resp.Responses[0].GetResponseDeleteRange()
	if del == nil {
		return nil, r.malformed()
	}
	del.Header = resp.Header
	return (*clientv3.DeleteResponse)(del), nil
}

// request is one write on its way.
type request struct {
	w        *FencedWriter
	verb     string
	resource string // key; "" for a transaction
	token    Token
}

func (w *FencedWriter) request(verb, resource string) *request {
	r := &request{w: w, verb: verb, resource: resource}
	if w.holder != nil {
		r.token = w.holder.Token()
	}
	return r
}

// send is the fence: If(IsOwner) Then(op), in one RPC. It returns etcd's answer,
// with one response in it, only if the comparison held.
func (r *request) send(ctx context.Context, op clientv3.Op) (*clientv3.TxnResponse, error) {
	h := r.w.holder
	if h == nil {
		return nil, r.refuse(ErrNoToken)
	}
	if err := r.w.opts.validate(); err != nil {
		return nil, r.refuse(err)
	}
	if err := backoff.ContextErr(ctx); err != nil {
		return nil, r.refuse(err)
	}
	if err := r.w.opts.admit(ctx, h); err != nil {
		return nil, r.refuse(err)
	}
	cli, owner := h.Client(), h.IsOwner()
	if r.token <= 0 || len(owner.KeyBytes()) == 0 || cli == nil || cli.KV == nil {
		return nil, r.refuse(ErrNoToken)
	}

	resp, err := cli.Txn(ctx).If(owner).Then(op).Commit()
	switch {
	case err != nil:
		return nil, r.failed(ctx, err)
	case resp == nil:
		return nil, r.malformed()
	case !resp.Succeeded:
		return nil, r.stale(ctx, h, owner)
	case len(resp.Responses) != 1:
		return nil, r.malformed()
	}
	return resp, nil
}

// stale is the error of a request that etcd has refused, recorded. The refusal
// proves that the holder's entry is gone, so a lock or term is told.
func (r *request) stale(ctx context.Context, h Holder, owner clientv3.Cmp) error {
	stale.Refused(h)
	err := &StaleError{Token: r.token, Resource: r.resource}
	record := Record{Event: Refused, Key: string(owner.KeyBytes()), Token: r.token, Resource: r.resource, Err: err}
	if named, ok := h.(Named); ok {
		record.Name = named.Name()
	}
	Audit(ctx, r.w.opts.Auditor, record)
	return err
}

func (r *request) String() string {
	if r.resource == "" {
		return fmt.Sprintf("fencing: %s with token %v", r.verb, r.token)
	}
	return fmt.Sprintf("fencing: %s %q with token %v", r.verb, r.resource, r.token)
}

// refuse is the error of a request that was not sent.
func (r *request) refuse(err error) error {
	return NotDone(fmt.Errorf("%v: not sent: %w", r, err))
}

// failed is the error of a request that was sent and not carried out, or not
// known to be.
func (r *request) failed(ctx context.Context, err error) error {
	if etcderr.Classify(err) != etcderr.Unknown {
		return NotDone(fmt.Errorf("%v: %w", r, err))
	}
	// clientv3 replaces some errors by the context's and forgets its cause;
	// others hide that the context has ended.
	switch cerr := backoff.ContextErr(ctx); {
	case cerr == nil:
	case errors.Is(cerr, err):
		err = cerr
	default:
		err = fmt.Errorf("%w: %w", cerr, err)
	}
	return fmt.Errorf("%v: %w: %w", r, holdfast.ErrOutcomeUnknown, err)
}

var errMalformed = errors.New("the answer does not have the form of an answer to this request")

// malformed is the error for an answer that etcd does not give. Something
// between here and etcd did, so there is no telling what happened.
func (r *request) malformed() error {
	return fmt.Errorf("%v: %w: %w", r, holdfast.ErrOutcomeUnknown, errMalformed)
}
