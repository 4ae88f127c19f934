package etcdfence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Marks keeps marks in etcd, for all replicas of a service. Commit is a guard for work in the same
// etcd; for work elsewhere Admit is only a [fencing.Filter], so Marks is not a [fencing.Store].
//
// Marks are at NAMESPACE/mark/RESOURCE, without a lease, in any etcd, and stay until Reset: some 100 to 1,600 bytes
// each. Nothing bounds their number, so let no client choose the resource freely. Deleting one by hand admits any
// token. If that etcd is restored from a backup, its marks are too low: raise the epoch before clients
// come back.
//
// Marks is safe for concurrent use.
type Marks struct {
	kv     clientv3.KV
	prefix string
	opts   MarksOptions
}

var _ fencing.Filter = (*Marks)(nil)

// MarksOptions configure [Marks]. The zero value is the default.
type MarksOptions struct {
	// Namespace is the first segment of the keys, with the rules of a session's.
	// Default "holdfast".
	Namespace string

	// Timeout bounds a call of Admit or Reset with all its attempts. Default 5 s.
	Timeout time.Duration

	// Retry paces the attempts of Admit and Reset; Commit has only one. An attempt takes up to 4 s, because after 5 s
	// etcd's client may send a write twice.
	Retry backoff.Policy
}

const defaultTimeout = 5 * time.Second

// NewMarks returns marks in the etcd of kv, such as a *clientv3.Client. The error is a *holdfast.ArgumentError or
// *holdfast.NameError.
func NewMarks(kv clientv3.KV, o MarksOptions) (*Marks, error) {
	m := &Marks{kv: kv, opts: o}
	if kv == nil {
		return nil, errNilKV
	}
	ns, err := names.Namespace(m.opts.Namespace)
	if err != nil {
		return nil, err
	}
	m.prefix = ns + "/mark/"
	if m.opts.Timeout < 0 {
		return nil, invalid("MarksOptions.Timeout", "is %v, which is negative", m.opts.Timeout)
	}
	if m.opts.Timeout == 0 {
		m.opts.Timeout = defaultTimeout
	}
	if err := retry.CheckPauses("MarksOptions.Retry", o.Retry.Initial, o.Retry.Max); err != nil {
		return nil, err
	}
	return m, nil
}

// Admit implements fencing.Filter with one linearizable read, and one write for the first request of a
// holder. If etcd does not answer in time, nothing is admitted.
func (m *Marks) Admit(ctx context.Context, resource string, c fencing.Claim) error {
	if err := fence.CheckUse(ctx, resource, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.opts.Timeout)
	defer cancel()
	key := m.prefix + resource
	return fencing.NotDone(backoff.Retry(ctx, m.opts.Retry, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requests.Patience)
		defer cancel()
		mark, mod, err := m.read(ctx, resource)
		if err != nil {
			return err
		}
		if err := c.CheckMark(resource, mark); err != nil {
			return retry.Final(err)
		}
		if mark == c {
			return nil
		}
		// Without the comparison a late request could lower a mark that was raised in the meantime:
		//
		//	mod 10, mark 5   a request of token 6 compares mod = 10; it is on its way for long
		//	mod 12, mark 9   the next holder has raised the mark: the request of token 6 does nothing
		resp, err := m.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", mod)).
			Then(clientv3.OpPut(key, markText(c))).
			Commit()
		switch {
		case err != nil:
			return err
		case !resp.Succeeded:
			return retry.Again(errMarkChanged)
		default:
			return nil
		}
	}))
}

var errMarkChanged = errors.New("another process changed the mark at the same time")

// Mark returns the mark of a resource, the zero Claim if there is none.
func (m *Marks) Mark(ctx context.Context, resource string) (fencing.Claim, error) {
	if ctx == nil {
		return fencing.Claim{}, errNilContext
	}
	mark, _, err := m.read(ctx, resource)
	return mark, err
}

func (m *Marks) read(ctx context.Context, resource string) (mark fencing.Claim, mod int64, err error) {
	resp, err := m.kv.Get(ctx, m.prefix+resource)
	if err != nil {
		return fencing.Claim{}, 0, err
	}
	return m.markOf(resource, (*etcdserverpb.RangeResponse)(resp))
}

// markOf returns the mark in a response, or a zero one. mod is set even if the
// mark cannot be parsed.
func (m *Marks) markOf(resource string, resp *etcdserverpb.RangeResponse) (mark fencing.Claim, mod int64, err error) {
	if len(resp.Kvs) == 0 {
		return fencing.Claim{}, 0, nil
	}
	mark, err = m.parse(resource, resp.Kvs[0].Value)
	return mark, resp.Kvs[0].ModRevision, err
}

// Reset deletes the mark of a resource, even one that cannot be parsed, and records that in a (nil: the default
// logger). Use it for a resource that no longer exists, or gets another lock, or has a mark no token can reach. No
// stale holder may be left: the next token is admitted, whatever it is.
//
// A new mark of another process after the deletion is kept, however often the deletion is sent. If the mark is raised
// before it can be deleted, it stays, and Reset fails. The error is a *fencing.ClaimError for the resource, or says
// that, or is that of etcd: then the mark may be deleted or not.
func (m *Marks) Reset(ctx context.Context, resource string, a audit.Auditor) error {
	if err := fence.CheckReset(ctx, resource); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.opts.Timeout)
	defer cancel()
	key := m.prefix + resource
	var mark fencing.Claim // zero if it cannot be parsed
	var mod int64          // of the mark; 0: it is not read yet
	ours := false          // our delete took effect, or may have
	err := backoff.Retry(ctx, m.opts.Retry, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requests.Patience)
		defer cancel()
		if mod == 0 {
			var err error
			if mark, mod, err = m.read(ctx, resource); mod == 0 {
				return err
			}
		}
		resp, err := m.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", mod)).
			Then(clientv3.OpDelete(key)).
			Else(clientv3.OpGet(key)).
			Commit()
		switch {
		case err != nil:
			ours = ours || etcderr.Classify(err) == etcderr.Unknown
			return err
		case resp.Succeeded:
			ours = true
			return nil
		}
		now := resp.Responses[0].GetResponseRange().Kvs
		if len(now) > 0 && now[0].CreateRevision <= mod { // not deleted since
			return retry.Final(errMarkChanged)
		}
		return nil // by an earlier copy of ours, or by another call
	})
	if err != nil {
		err = fmt.Errorf("etcdfence: reset of the mark at %s: %w", names.Quote(key), err)
	}
	if ours {
		audit.Tell(ctx, a, audit.Record{
			Event: audit.Reset, Name: mark.Name, Resource: resource, Mark: mark.Token, Err: err,
		})
	}
	return err
}

// markDigits is the width of the token in a mark. Etcd compares bytes: with a fixed width their order is the order of
// numbers.
const markDigits = 19

// markText returns the value of a mark: the escaped name, a space, the token. An
// escaped name contains no space, so in byte order exactly the marks of this name
// are between those of token 0 and of the largest token.
func markText(c fencing.Claim) string {
	return fmt.Sprintf("%s %0*d", names.Escape(c.Name), markDigits, int64(c.Token))
}

// parse reads what markText wrote. Anything else is an error, never "no mark".
func (m *Marks) parse(resource string, value []byte) (fencing.Claim, error) {
	bad := func(err error) error {
		return retry.Final(fmt.Errorf("etcdfence: the value of %s is not a mark: %.64q: %w",
			names.Quote(m.prefix+resource), value, err))
	}
	escaped, digits, ok := strings.Cut(string(value), " ")
	if !ok || len(digits) != markDigits {
		return fencing.Claim{}, bad(fencing.ErrBadClaim)
	}
	name, reason := names.Unescape(escaped, fencing.MaxName)
	if reason != "" {
		return fencing.Claim{}, bad(&fencing.ClaimError{Part: "name", Reason: reason})
	}
	token, err := holdfast.ParseToken(strings.TrimLeft(digits, "0"))
	if err != nil {
		return fencing.Claim{}, bad(&fencing.ClaimError{Part: "token", Err: err})
	}
	return fencing.Claim{Name: name, Token: token}, nil
}
