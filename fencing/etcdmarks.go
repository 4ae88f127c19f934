package fencing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/names"
)

// EtcdMarks keeps marks in etcd, so that all replicas of a service agree on
// them. What that is worth depends on where the effect is:
//
//   - It is in the same etcd: Commit raises the mark and does the work in one
//     transaction. That is a guard, with all that [Store] promises.
//   - It is elsewhere: Admit is a [Filter], no more. Between its answer and the
//     effect a replica can be paused, and no lock around the two would change
//     that, since such a lock can be lost as well.
//
// It is no Store for that reason.
//
// Marks stand at NAMESPACE/mark/RESOURCE and have no lease. None is to be written
// by hand: deleting one resets it. They may be in another etcd than the locks.
// When the one that has them is restored from a backup they are too low, and a
// stale holder may pass: raise the epoch before letting clients in.
type EtcdMarks struct {
	kv     clientv3.KV
	prefix string
	opts   EtcdOptions
	room   atomic.Int64 // new marks that may be made before the next count
}

var _ Filter = (*EtcdMarks)(nil)

// EtcdOptions are the policies of an [EtcdMarks].
type EtcdOptions struct {
	// Namespace is the first segment of the keys. Default "holdfast"; as that of
	// a session: no "/", no leading "@", at most 64 bytes.
	Namespace string

	// Timeout bounds an Admit, all attempts together. Default 5 s. A request of
	// a server often has no deadline of its own, and etcd's client waits for as
	// long as no endpoint can be reached.
	Timeout time.Duration

	// Retry paces the attempts of an Admit and a Reset. The zero value is
	// backoff's default, with 4 s for an Attempt. One of 5 s and more is refused:
	// by then an etcd server may have answered in a way that its client takes as
	// leave to send a write again, unseen. Commit does not try again.
	Retry backoff.Policy

	// MaxMarks is how many resources may have a mark. Marks stay for ever, so
	// resources that clients choose would fill etcd. One beyond that is refused
	// with [ErrFull] until another was dropped with Reset; those that have a mark
	// go on. A count is good for a hundredth of the new resources that it finds
	// room for, one to a hundred, so that each process can be over by as many.
	// Default [DefaultEtcdMarks]. Negative: no bound.
	MaxMarks int64
}

// DefaultEtcdMarks is how many resources have a mark in one namespace unless
// [EtcdOptions] say otherwise. Each is a key of some 100 to 1,600 bytes: of this
// many, etcd's default quota of 2 GB holds the largest ten times.
const DefaultEtcdMarks = 100_000

// countEvery is how many new resources one count of the marks is good for at
// most.
const countEvery = 100

// NewEtcdMarks returns marks in the etcd that kv leads to; a *clientv3.Client is
// one. A nil opts means all defaults. The error is a *holdfast.NameError or a
// *holdfast.ArgumentError.
func NewEtcdMarks(kv clientv3.KV, opts *EtcdOptions) (*EtcdMarks, error) {
	m := &EtcdMarks{kv: kv}
	if opts != nil {
		m.opts = *opts
	}
	if kv == nil {
		return nil, &holdfast.ArgumentError{Argument: "kv", Reason: "is nil"}
	}
	ns, err := names.Namespace(m.opts.Namespace)
	if err != nil {
		return nil, err
	}
	m.prefix = ns + "/mark/"
	if m.opts.Timeout < 0 {
		return nil, &holdfast.ArgumentError{Argument: "EtcdOptions.Timeout", Reason: fmt.Sprintf("is %v, which is negative", m.opts.Timeout)}
	}
	if m.opts.Timeout == 0 {
		m.opts.Timeout = 5 * time.Second
	}
	if m.opts.MaxMarks == 0 {
		m.opts.MaxMarks = DefaultEtcdMarks
	}
	if m.opts.Retry.Attempt == 0 {
		m.opts.Retry.Attempt = defaultAttempt
	}
	if err := checkRetry(m.opts.Retry); err != nil {
		return nil, err
	}
	return m, nil
}

// Admit implements [Filter]: one linearizable read, and one write more when the
// token is the first of its holder. An error of etcd, or [context.DeadlineExceeded]
// after Options.Timeout, admits nothing.
func (m *EtcdMarks) Admit(ctx context.Context, resource string, c Claim) error {
	if err := checkUse(resource, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.opts.Timeout)
	defer cancel()
	key := m.prefix + resource
	return NotDone(backoff.Retry(ctx, m.opts.Retry, func(ctx context.Context) error {
		mark, mod, err := m.read(ctx, resource)
		if err != nil {
			return err
		}
		if err := c.CheckMark(resource, mark); err != nil {
			return backoff.Final(err)
		}
		if mark.Token == c.Token {
			return nil
		}
		if mod == 0 {
			if err := m.makeRoom(ctx, resource); err != nil {
				return err
			}
		}
		// The comparison keeps a late send from lowering a mark set since.
		resp, err := m.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", mod)).
			Then(clientv3.OpPut(key, markText(c))).
			Commit()
		switch {
		case err != nil:
			return err
		case !resp.Succeeded:
			return backoff.Again(errRaised)
		case mod == 0:
			m.room.Add(-1)
		}
		return nil
	}))
}

var errRaised = errors.New("the mark was raised meanwhile")

// Mark returns the mark of a resource, a zero Claim if there is none.
func (m *EtcdMarks) Mark(ctx context.Context, resource string) (Claim, error) {
	mark, _, err := m.read(ctx, resource)
	return mark, err
}

func (m *EtcdMarks) read(ctx context.Context, resource string) (mark Claim, mod int64, err error) {
	resp, err := m.kv.Get(ctx, m.prefix+resource)
	if err != nil {
		return Claim{}, 0, err
	}
	return m.found(resource, (*etcdserverpb.RangeResponse)(resp))
}

// found is the mark in an answer, a zero one if it has none. mod is set also
// beside an error.
func (m *EtcdMarks) found(resource string, resp *etcdserverpb.RangeResponse) (mark Claim, mod int64, err error) {
	if len(resp.Kvs) == 0 {
		return Claim{}, 0, nil
	}
	mark, err = m.parse(resource, resp.Kvs[0].Value)
	return mark, resp.Kvs[0].ModRevision, err
}

// Reset drops the mark of a resource, and tells a of that (nil: slog.Default()):
// for a resource that exists no more, that another lock is to guard from now on,
// or whose mark no token reaches or cannot be read. From then on any token
// passes, so make sure first that no stale holder is left. Without a mark it does
// nothing.
//
// The error is a *[ClaimError] for a resource that cannot be one, or etcd's
// after Options.Timeout. The mark may have been dropped then. Repeating is safe:
// a mark that was set since the reset read it is left alone.
func (m *EtcdMarks) Reset(ctx context.Context, resource string, a Auditor) error {
	if err := checkResource(resource); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.opts.Timeout)
	defer cancel()
	key := m.prefix + resource
	var dropped Claim
	ours := false // our delete took effect, or may have
	err := backoff.Retry(ctx, m.opts.Retry, func(ctx context.Context) error {
		mark, mod, err := m.read(ctx, resource)
		if mod == 0 {
			return err
		}
		if !ours {
			dropped = mark // zero if it cannot be read
		}
		resp, err := m.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", mod)).
			Then(clientv3.OpDelete(key)).
			Commit()
		if err != nil {
			ours = ours || etcderr.Classify(err) == etcderr.Unknown
			return err
		}
		if !resp.Succeeded {
			return backoff.Again(errRaised)
		}
		ours = true
		return nil
	})
	if err != nil {
		err = fmt.Errorf("fencing: reset of the mark at %s: %w", names.Quote(key), err)
	}
	if ours {
		AuditReset(ctx, a, resource, dropped, err)
	}
	return err
}

// parse reads a mark. What cannot be read is an error and never "no mark".
func (m *EtcdMarks) parse(resource string, value []byte) (Claim, error) {
	bad := func(err error) error {
		return backoff.Final(fmt.Errorf("fencing: the mark at %s is not one: %.64q: %w", names.Quote(m.prefix+resource), value, err))
	}
	escaped, digits, ok := strings.Cut(string(value), " ")
	if !ok || len(digits) != markDigits {
		return Claim{}, bad(ErrBadClaim)
	}
	name, err := UnescapeName(escaped)
	if err != nil {
		return Claim{}, bad(err)
	}
	token, err := ParseToken(strings.TrimLeft(digits, "0"))
	if err != nil {
		return Claim{}, bad(err)
	}
	return Claim{name, token}, nil
}

// markDigits is the width of a token in a mark: with all of one width, the order
// of bytes, which is what etcd compares, is the order of numbers.
const markDigits = 19

// markText is the value of a mark: the escaped name, a space, the token. An
// escaped name has no space in it, so the marks of one name, and no others, lie
// between that of token 0, which nothing has, and that of the largest.
func markText(c Claim) string {
	return fmt.Sprintf("%s %0*d", EscapeName(c.Name), markDigits, int64(c.Token))
}

// makeRoom returns nil if one more resource may have a mark.
func (m *EtcdMarks) makeRoom(ctx context.Context, resource string) error {
	if m.opts.MaxMarks < 0 || m.room.Load() > 0 {
		return nil
	}
	resp, err := m.kv.Get(ctx, m.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("count of the marks below %s: %w", names.Quote(m.prefix), err)
	}
	free := m.opts.MaxMarks - resp.Count
	if free <= 0 {
		return backoff.Final(errFull(resource, resp.Count, "EtcdOptions.MaxMarks"))
	}
	m.room.Store(min(max(free/100, 1), countEvery))
	return nil
}
