package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// request is one call of Kick or Remove.
type request struct {
	*Client
	queue  layout.Keyspace
	token  holdfast.Token
	notice layout.Notice

	holder     holder // as it was seen last
	told       bool   // a notice stands, or has stood, in the holder's entry
	unanswered bool   // a write was sent and not answered
}

// holder is the entry of a holder; of a lock that can be downgraded, both.
type holder struct {
	writable []writable
	entry    Entry // the writer's of two
}

// writable is an entry as it was read.
type writable struct {
	key   string
	mod   int64 // of value
	value layout.Value
}

// all reports whether each of the entries has a notice for which f is true.
func (h holder) all(f func(layout.Notice) bool) bool {
	return !slices.ContainsFunc(h.writable, func(w writable) bool { return !f(w.value.Notice) })
}

// newRequest checks what the caller has given.
func (c *Client) newRequest(
	ctx context.Context, kind holdfast.Kind, name string, token holdfast.Token, reason string,
) (*request, error) {
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	if token <= 0 {
		return nil, &holdfast.ArgumentError{Argument: "token", Reason: "is not that of an acquisition: see Entry.Token, " +
			"and Entry.Revision where that is 0"}
	}
	if bad := badText(reason); reason == "" || bad != "" {
		if reason == "" {
			bad = "is empty: the holder and the audit need one"
		}
		return nil, &holdfast.ArgumentError{Argument: "reason", Reason: bad}
	}
	q, err := c.find(kind, name)
	if err != nil {
		return nil, err
	}
	n := layout.Notice{By: c.owner, Reason: reason, At: time.Now()}
	return &request{Client: c, queue: q, token: token, notice: n}, nil
}

// badText returns why a text cannot be written into an entry, or "".
func badText(text string) string {
	switch {
	case len(text) > layout.MaxText:
		return fmt.Sprintf("is longer than %d bytes", layout.MaxText)
	case !utf8.ValidString(text):
		return "is not valid UTF-8"
	default:
		return ""
	}
}

var errEntryChanged = errors.New("the holder's entry was changed meanwhile")

// ask puts the notice into the holder's entry, unless one stands there that asks for as much.
func (r *request) ask(ctx context.Context) error {
	return r.retry(ctx, func(ctx context.Context) error {
		if err := r.find(ctx); err != nil {
			return err
		}
		h := r.holder
		if h.entry.Released() && !r.notice.Removed { // MinHold keeps its name; no holder would read the notice
			return r.failed(ErrNotHeld, h.entry)
		}
		if h.entry.Detached() {
			return r.endTicket(ctx)
		}
		asked := func(n layout.Notice) bool { return n.Given() && (n.Removed || !r.notice.Removed) }
		if h.all(asked) {
			r.told = true
			return nil
		}
		notice := func(layout.Notice) layout.Notice { return r.notice }
		err := r.write(ctx, notice, asked, r.bell(), clientv3.WithIgnoreLease())
		if errors.Is(err, rpctypes.ErrPermissionDenied) { // perhaps of the session key only: the holder is told later
			err = r.write(ctx, notice, asked, nil, clientv3.WithIgnoreLease())
		}
		return err
	})
}

// endTicket revokes the lease of a detached entry: entry and claim go in one revision, and the name is free at once,
// for none holds. It compares nothing: after an Attach neither is on that lease any more. Then the new holder is asked.
func (r *request) endTicket(ctx context.Context) error {
	revoke := func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return r.client.Revoke(ctx, r.holder.entry.Lease)
	}
	_, _, err := requests.Once(ctx, r.sender, requests.Write, revoke)
	if err != nil && etcderr.Classify(err) != etcderr.LeaseGone {
		r.unanswered = r.unanswered || etcderr.Classify(err) == etcderr.Unknown
		return retry.WithConnection(r.client.ActiveConnection(), err)
	}
	r.told = true
	if err = r.find(ctx); errors.Is(err, ErrNotHeld) {
		r.unanswered = false
		return nil
	}
	return cmp.Or(err, retry.Again(errEntryChanged))
}

// bell returns what makes the holder's session look for the notice at once: the put of its session key, as it is, if
// that exists. It names no lease: etcd would demand write permission for every key of that.
func (r *request) bell() []clientv3.Op {
	key := layout.SessionKey(r.namespace, r.holder.entry.Lease)
	exists := clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	put := clientv3.OpPut(key, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())
	return []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{exists}, []clientv3.Op{put}, nil)}
}

// find reads the entry with the token, which must hold. Nothing can join a queue ahead of an entry, so one that holds
// goes on holding.
func (r *request) find(ctx context.Context) error {
	rev := r.token.Revision()
	oldest := clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)
	find := func(from, end string) []clientv3.Op {
		return []clientv3.Op{
			clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(1), oldest),
			clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithMinCreateRev(rev), clientv3.WithMaxCreateRev(rev)),
		}
	}
	writers, end := r.queue.Writers()
	others := []clientv3.Op{
		clientv3.OpGet(writers, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly(), oldest),
		clientv3.OpGet(names.EpochKey(r.namespace)),
	}
	if r.isPermit() {
		others = find(r.queue.Turns())
	}
	resp, err := r.read(ctx, append(find(r.queue.All()), others...)...)
	if err != nil {
		return err
	}
	first, own, epoch := resp.First(0), resp.Range(1).Kvs, resp.Range(3).Kvs
	if r.isPermit() {
		own, epoch = append(own, epoch...), nil
		older := func(turn *mvccpb.KeyValue) bool { return first == nil || turn.CreateRevision < first.CreateRevision }
		if turn := resp.First(2); turn != nil && turn.Version > 1 && older(turn) {
			first = turn
		}
	}
	if first == nil && len(own) == 0 {
		return r.failed(ErrNotHeld, Entry{})
	}
	if first == nil {
		first = own[0]
	}
	now, err := r.view(ctx, first, epoch)
	if err != nil || len(own) == 0 {
		return cmp.Or(err, r.failed(ErrNotHeld, now))
	}
	kv := own[len(own)-1] // a writer's key comes behind a reader's
	e, err := r.view(ctx, kv, epoch)
	switch {
	case err != nil:
		return err
	case e.Token != 0 && e.Token != r.token:
		return r.failed(ErrNotHeld, now)
	case (r.isPermit() || kv.CreateRevision != first.CreateRevision) && !r.holds(e, resp.Range(2).Kvs):
		return r.failed(ErrWaits, now)
	}
	r.holder = holder{entry: e}
	for _, kv := range own {
		v, ok := layout.DecodeValue(kv.Value)
		if !ok || v.ToldWithin == 0 || r.queue.Verbatim {
			return r.failed(ErrNotTold, now)
		}
		r.holder.writable = append(r.holder.writable, writable{string(kv.Key), kv.ModRevision, v})
	}
	return nil
}

func (r *request) failed(reason error, now Entry) error {
	return &HolderError{Token: r.token, Err: reason, Holder: now, permit: r.isPermit()}
}

func (r *request) isPermit() bool { return r.queue.Kind == holdfast.KindSemaphore }

// holds reports whether an entry holds that is not the first: a permit that is not waited for, or a reader's that the
// oldest writer is not ahead of.
func (r *request) holds(e Entry, writers []*mvccpb.KeyValue) bool {
	if r.isPermit() {
		return !e.Waits
	}
	return e.Shared && (len(writers) == 0 || writers[0].CreateRevision >= e.Revision)
}

// view returns what people see of an entry, with its token.
func (r *request) view(ctx context.Context, kv *mvccpb.KeyValue, epoch []*mvccpb.KeyValue) (e Entry, err error) {
	e = r.queue.View(kv)
	if r.isPermit() { // it has none
		return e, nil
	}
	e.Token, err = r.Client.token(ctx, epoch, kv.CreateRevision)
	return e, err
}

// write changes the notices in the holder's entries if those are as find has read them, and rings the bell, if there is
// one. written tells a notice that was changed.
func (r *request) write(
	ctx context.Context, notice func(layout.Notice) layout.Notice, written func(layout.Notice) bool,
	bell []clientv3.Op, opts ...clientv3.OpOption,
) error {
	var unchanged []clientv3.Cmp
	var puts []clientv3.Op
	for _, w := range r.holder.writable {
		unchanged = append(unchanged,
			clientv3.Compare(clientv3.CreateRevision(w.key), "=", r.token.Revision()),
			clientv3.Compare(clientv3.ModRevision(w.key), "=", w.mod))
		w.value.Notice = notice(w.value.Notice)
		puts = append(puts, clientv3.OpPut(w.key, w.value.Encode(), opts...))
	}
	resp, err := requests.Txn{If: unchanged, Then: append(puts, bell...)}.Once(ctx, r.sender, requests.Write)
	switch {
	case err != nil && !resp.Unanswered && !etcderr.Pending(err) && etcderr.Classify(err) == etcderr.Unknown:
		// So a full store refuses, but also answers the one request that has filled it, and that it has carried out. A
		// read tells which it was.
		found := r.find(ctx)
		if found == nil && r.holder.all(written) {
			r.told = true
			return nil
		}
		r.unanswered = r.unanswered || found != nil
		return err
	case err != nil:
		r.unanswered = r.unanswered || resp.Unanswered || etcderr.Classify(err) == etcderr.Unknown
		return retry.WithConnection(r.client.ActiveConnection(), err)
	case !resp.Succeeded:
		r.unanswered = r.unanswered || resp.Unanswered // perhaps it was a copy of this that has changed the entry
		return retry.Again(errEntryChanged)
	default:
		r.told = true
		return nil
	}
}

// retry repeats op, whose requests have their own bounds.
func (r *request) retry(ctx context.Context, op func(ctx context.Context) error) error {
	return backoff.Retry(ctx, r.policy, op)
}

// finish records the request, if it was or may have been carried out, and returns the error for the caller.
func (r *request) finish(ctx context.Context, event audit.Event, err error) error {
	if err != nil && r.unanswered {
		err = fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
	}
	if err != nil {
		err = fmt.Errorf("%s %v: %w", verbs[event], r.queue, err)
	}
	if r.told || r.unanswered {
		h, token := r.holder, r.token
		if r.isPermit() {
			token = 0
		}
		audit.Tell(ctx, r.auditor, audit.Record{
			Event: event, Kind: r.queue.Kind, Name: r.queue.Name, Key: h.entry.Key,
			Lease: h.entry.Lease, Token: token, Holder: h.entry.String(),
			By: r.notice.By, Detail: r.notice.Reason, Err: err,
		})
	}
	return err
}

var verbs = map[audit.Event]string{audit.Kicked: "kick", audit.Removed: "remove"}
