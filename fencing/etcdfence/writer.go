package etcdfence

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// MaxOps is how many comparisons, Then operations, or Else operations a transaction of a [Writer] may have:
// etcd's default limit, less the fence. Nested transactions share what their outer level leaves. For a lock with n
// entries in etcd, of a locker.Set or a locker.TreeMutex, it is MaxOps+1-n.
const MaxOps = 127

// WriterOptions configure a [Writer]. The zero value is the default.
type WriterOptions struct {
	// Auditor receives a record of each write that etcd refused as stale. Default: the default logger, at Warn.
	Auditor audit.Auditor
}

// Writer writes to etcd on behalf of a holder, and only while the holder's entry exists; of a lock that
// was acquired together with others (locker.Set, locker.TreeMutex), while all their entries exist. Each
// write is one RPC that compares and writes. A Writer is safe for concurrent use. A key outlives
// the lock, unless it is put with clientv3.WithLease and the lock's lease. The result of a write is
// one of:
//
//   - nil: it took effect, and the holder was still the holder.
//   - fencing.ErrStale: etcd refused it, because the holder's entry is gone. It had no effect (the package
//     documentation has an exception), and the lock or term is lost: its Check fails and its contexts
//     are canceled.
//   - holdfast.ErrOutcomeUnknown, joined with its cause: it was not answered, and not sent again. It may
//     have taken effect, or may do so while the holder's entry exists: after a Detach also over what the next process
//     writes, which goes on with the hold by the ticket. Unlock then, or read back first what was written.
//   - any other error: nothing was written (fencing.ErrNotDone). Before anything is sent these are
//     *holdfast.ArgumentError, [holdfast.ErrNoToken], ctx's error, and that of the holder's Check: a
//     suspended holder gets holdfast.ErrSuspended, and may write again when its Check returns nil.
type Writer struct {
	owner fencing.Hold // nil: every write returns ErrNoToken
	opts  WriterOptions
}

// NewWriter returns a writer for o, a fencing.Holder or a reader, with default options.
func NewWriter(o fencing.Hold) *Writer {
	if names.IsNil(o) {
		o = nil
	}
	return &Writer{owner: o}
}

// With returns a copy with these options, in place of those it had.
func (w *Writer) With(o WriterOptions) *Writer {
	return &Writer{owner: w.owner, opts: o}
}

// Put puts key, with the options of clientv3's Put. See [Writer] for errors.
func (w *Writer) Put(
	ctx context.Context, key, val string, opts ...clientv3.OpOption,
) (*clientv3.PutResponse, error) {
	r := w.request("put", key)
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

// Delete deletes key, or a range, with the options of clientv3's Delete. An empty key is always an
// error. See [Writer] for errors.
func (w *Writer) Delete(
	ctx context.Context, key string, opts ...clientv3.OpOption,
) (*clientv3.DeleteResponse, error) {
	r := w.request("delete", key)
	if key == "" { // with clientv3.WithPrefix it would delete all of etcd
		return nil, r.refuse(invalid("key", "is empty"))
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

// request is one write of a Writer, or one commit of Marks, without a writer.
type request struct {
	w         *Writer
	verb      string
	resource  string         // the key; "" for a transaction
	token     holdfast.Token // 0 for an owner that is no Source
	noToken   bool           // there ought to be one
	tokenless bool           // there is none: the owner is a reader
}

func (w *Writer) request(verb, resource string) *request {
	r := &request{w: w, verb: verb, resource: resource}
	if w.owner != nil {
		s, ok := w.owner.(fencing.Source)
		if r.tokenless = !ok; ok {
			r.token = s.Token()
			r.noToken = r.token <= 0
		}
	}
	return r
}

// send is the fence: If(Holding) Then(op), in one RPC. It returns etcd's response,
// with exactly one result, only if the comparison held.
func (r *request) send(ctx context.Context, op clientv3.Op) (*clientv3.TxnResponse, error) {
	h := r.w.owner
	if h == nil {
		return nil, r.refuse(holdfast.ErrNoToken)
	}
	if ctx == nil {
		return nil, r.refuse(errNilContext)
	}
	if err := retry.ContextErr(ctx); err != nil {
		return nil, r.refuse(err)
	}
	if err := h.Check(); err != nil {
		return nil, r.refuse(err)
	}
	cli, owned := h.Client(), h.Holding()
	if r.noToken || !compares(owned) || cli == nil || cli.KV == nil {
		return nil, r.refuse(holdfast.ErrNoToken)
	}
	if err := checkOp(op, MaxOps+1-len(owned)); err != nil {
		return nil, r.refuse(err)
	}

	resp, err := cli.Txn(ctx).If(owned...).Then(op).Commit()
	switch {
	case err != nil:
		return nil, r.failed(ctx, err)
	case resp == nil:
		return nil, r.malformed()
	case !resp.Succeeded:
		return nil, r.stale(ctx, h, owned[0])
	case len(resp.Responses) != 1:
		return nil, r.malformed()
	}
	return resp, nil
}

// compares reports whether there are comparisons, and all of a key. Without one a Txn would always succeed.
func compares(owned []clientv3.Cmp) bool {
	noKey := func(c clientv3.Cmp) bool { return len(c.KeyBytes()) == 0 }
	return len(owned) > 0 && !slices.ContainsFunc(owned, noKey)
}

// checkOp returns why etcd would refuse an operation: an empty key, or a transaction with more than most operations.
// What is nested shares what its outer level leaves.
func checkOp(op clientv3.Op, most int) error {
	if !op.IsTxn() {
		if len(op.KeyBytes()) == 0 {
			return invalid("key", "is empty")
		}
		return nil
	}
	cmps, then, els := op.Txn()
	n := max(len(cmps), len(then), len(els))
	if n > most {
		return invalid("ops", "are %d in one transaction, more than %d", n, most)
	}
	if len(cmps) > 0 && !compares(cmps) {
		return invalid("cmps", "compare an empty key")
	}
	for _, each := range slices.Concat(then, els) {
		if err := checkOp(each, most-n); err != nil {
			return err
		}
	}
	return nil
}

// stale records a write that etcd refused, and returns its error. The refusal proves that the holder's entry is gone,
// so it ends the hold.
func (r *request) stale(ctx context.Context, h fencing.Hold, owner clientv3.Cmp) error {
	requests.Refused(h)
	err := fmt.Errorf("%v: refused, its holder's entry is gone: %w", r, fencing.ErrStale)
	audit.Tell(ctx, r.w.opts.Auditor, audit.Record{
		Event: audit.Refused, Name: h.Name(), Key: string(owner.KeyBytes()),
		Token: r.token, Resource: r.resource, Err: err,
	})
	return err
}

func (r *request) String() string {
	text := "etcdfence: " + r.verb
	if r.resource != "" {
		text += " " + names.Quote(r.resource)
	}
	if r.tokenless {
		return text + " without a token"
	}
	return fmt.Sprintf("%s with token %v", text, r.token)
}

// refuse returns the error of a write before it is sent.
func (r *request) refuse(err error) error {
	return fencing.NotDone(fmt.Errorf("%v: not sent: %w", r, err))
}

// failed returns the error of a write that was sent: it failed, or its outcome is unknown.
func (r *request) failed(ctx context.Context, err error) error {
	if etcderr.Classify(err) != etcderr.Unknown {
		return fencing.NotDone(fmt.Errorf("%v: %w", r, err))
	}
	// clientv3 replaces some errors by the context's, without its cause. Others
	// hide that the context has ended.
	switch cerr := retry.ContextErr(ctx); {
	case cerr == nil:
	case errors.Is(cerr, err):
		err = cerr
	default:
		err = fmt.Errorf("%w: %w", cerr, err)
	}
	// A loss that has ended ctx says nothing of this write, which may have been carried out before.
	return fmt.Errorf("%v: %w: %w", r, holdfast.ErrOutcomeUnknown, retry.OfCaller(ctx, err))
}

var errMalformed = errors.New("malformed response from etcd")

// malformed returns the error of a response that etcd never sends. Something in between did: the outcome is unknown.
func (r *request) malformed() error {
	return fmt.Errorf("%v: %w: %w", r, holdfast.ErrOutcomeUnknown, errMalformed)
}

func invalid(argument, reason string, args ...any) error {
	return &holdfast.ArgumentError{Argument: argument, Reason: fmt.Sprintf(reason, args...)}
}

var (
	errNilContext = invalid("ctx", "is nil")
	errNilKV      = invalid("kv", "is nil")
)
