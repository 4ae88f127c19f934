package fencing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/names"
)

const (
	// MaxEpoch is the largest epoch; see [NewToken].
	MaxEpoch = maxEpoch
)

// EpochError says that the epoch was not changed, because of what was asked for
// or of what stands there.
type EpochError struct {
	Key    string
	Reason string
	Err    error // ErrEpochStep, or nil
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("fencing: epoch at %s %s", names.Quote(e.Key), e.Reason)
}

func (e *EpochError) Unwrap() error { return e.Err }

// BumpEpoch raises the epoch of a namespace ("" is "holdfast") to atLeast, and
// returns the one in force. It never lowers: one that is as high or higher
// already is left alone and returned, so that it can be repeated by hand or by a
// script. a is told of a change (nil: slog.Default()).
//
// It is what an operator does after etcd was restored from a backup without
// moving its revisions on. Prefer a restore that moves them
// (--bump-revision N --mark-compacted): nothing has to be bumped then. Otherwise:
// restore, BumpEpoch to what the refusing guard's [MarkError] says, and only
// then let clients in.
//
// What happens to holders: nothing at once. An acquisition that is queued after
// the bump has a token of the new epoch, above all tokens of older ones. A lock
// held, or already queued for, at the time of the bump keeps the token of the
// old epoch; guards go on taking that until they have seen one of the new, and
// refuse it from then on. A holder that guards refuse with [ErrStale] must
// release and acquire again.
//
// Errors: *holdfast.NameError; *holdfast.ArgumentError if atLeast is outside 1
// to 32767; *[EpochError] if it is more than [MaxEpochStep] above the epoch in force ([ErrEpochStep]), or what
// stands at the key is not an epoch (it is left as it is); otherwise what
// etcd said, with ctx's error when that ended the attempts. The epoch may have
// been raised then. Repeating is safe.
func BumpEpoch(ctx context.Context, kv clientv3.KV, namespace string, atLeast int64, a Auditor) (int64, error) {
	namespace, err := names.Namespace(namespace)
	if err != nil {
		return 0, err
	}
	if atLeast < 1 || atLeast > maxEpoch {
		return 0, &holdfast.ArgumentError{Argument: "atLeast", Reason: fmt.Sprintf("is %d, not between 1 and %d", atLeast, maxEpoch)}
	}
	key := names.EpochKey(namespace)
	var was, now int64
	ours := false // our write took effect, or may have
	err = backoff.Retry(ctx, backoff.Policy{Attempt: defaultAttempt}, func(ctx context.Context) error {
		epoch, mod, err := readEpoch(ctx, kv, key)
		if err != nil {
			return err
		}
		if now = epoch; epoch >= atLeast {
			return nil
		}
		if atLeast > epoch+MaxEpochStep {
			return backoff.Final(&EpochError{key, fmt.Sprintf("is %d; it is not raised to %d, since guards refuse a step of more than %d",
				epoch, atLeast, MaxEpochStep), ErrEpochStep})
		}
		if !ours {
			was = epoch
		}
		// The comparison is what keeps a send that arrives late, after somebody
		// else has bumped further, from lowering the epoch.
		resp, err := kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", mod)).
			Then(clientv3.OpPut(key, strconv.FormatInt(atLeast, 10))).
			Commit()
		if err != nil {
			ours = ours || etcderr.Classify(err) == etcderr.Unknown
			return err
		}
		if !resp.Succeeded {
			return backoff.Again(fmt.Errorf("the epoch at %s was changed meanwhile", names.Quote(key)))
		}
		now, ours = atLeast, true
		return nil
	})
	if err != nil {
		now, err = 0, epochFailed(fmt.Sprintf("bump of the epoch to %d", atLeast), key, "readwrite", err)
	}
	if ours {
		Audit(ctx, a, Record{
			Event: Bumped, Key: key, Holder: self(),
			Detail: fmt.Sprintf("epoch %d → %d", was, atLeast), Err: err,
		})
	}
	return now, err
}

// Epoch returns the epoch of a namespace ("" is "holdfast"), 0 if none was set.
// It is a linearizable read. Errors are those of [BumpEpoch].
func Epoch(ctx context.Context, kv clientv3.KV, namespace string) (int64, error) {
	namespace, err := names.Namespace(namespace)
	if err != nil {
		return 0, err
	}
	key := names.EpochKey(namespace)
	epoch, _, err := readEpoch(ctx, kv, key)
	if err != nil {
		err = epochFailed("read of the epoch", key, "read", err)
	}
	return epoch, err
}

func readEpoch(ctx context.Context, kv clientv3.KV, key string) (epoch, mod int64, err error) {
	resp, err := kv.Get(ctx, key)
	if err != nil || len(resp.Kvs) == 0 {
		return 0, 0, err
	}
	got := resp.Kvs[0]
	epoch, err = strconv.ParseInt(string(got.Value), 10, 64)
	if err != nil || epoch < 0 || epoch > maxEpoch {
		return 0, 0, backoff.Final(&EpochError{key, fmt.Sprintf("is %.64q, not a number from 0 to %d; it is left as it is", got.Value, maxEpoch), nil})
	}
	return epoch, got.ModRevision, nil
}

// epochFailed names the key and, if it may not be used, the permission to grant.
func epochFailed(what, key, permission string, err error) error {
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return fmt.Errorf("fencing: %s at %s: this needs \"etcdctl role grant-permission ROLE %s %s\": %w", what, names.Quote(key), permission, key, err)
	}
	return fmt.Errorf("fencing: %s at %s: %w", what, names.Quote(key), err)
}

// self says who this is, for people.
func self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s pid %d", host, os.Getpid())
}
