package etcdfence

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// maxEpoch is that of the largest token.
var maxEpoch = holdfast.Token(math.MaxInt64).Epoch()

// BumpEpoch raises the epoch of a namespace ("" is "holdfast") to at least atLeast and returns the
// present epoch. It never lowers an epoch, so it may be repeated. A change is recorded in a (nil: the
// default logger).
//
// It is for operators, after a restore of etcd has set its revisions back below the marks: call it
// with what the guard's *fencing.MarkError says, and only then let clients in. Locks acquired after the bump
// have tokens above all earlier tokens. Once a guard has seen a newer token, it refuses those with fencing.ErrStale:
//
//	rev 900 a lock has token 900; a backup of rev 500 is restored
//	rev 501 the next lock would have token 501, and the guard with mark 900 would refuse it
//	        BumpEpoch(1): the next lock has token 1<<48 | 502, and the guard refuses token 900
//
// Errors are *holdfast.NameError (namespace), *holdfast.ArgumentError (kv is nil, or atLeast is not between
// 1 and 32767), fencing.ErrEpochStep (it is above fencing.MaxEpochStep), an error for a value in etcd that is no epoch
// (it is left unchanged), or that of etcd; then the epoch may be raised or not.
func BumpEpoch(
	ctx context.Context, kv clientv3.KV, namespace string, atLeast int64, a audit.Auditor,
) (int64, error) {
	key, err := epochKey(ctx, kv, namespace)
	if err != nil {
		return 0, err
	}
	if atLeast < 1 || atLeast > maxEpoch {
		return 0, invalid("atLeast", "is %d, not between 1 and %d", atLeast, maxEpoch)
	}
	var was, now int64
	ours := false // our write took effect, or may have
	err = backoff.Retry(ctx, backoff.Policy{}, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requests.Patience)
		defer cancel()
		epoch, mod, err := readEpoch(ctx, kv, key)
		if err != nil {
			return err
		}
		if now = epoch; epoch >= atLeast {
			return nil
		}
		if atLeast > fencing.MaxEpochStep {
			return retry.Final(fmt.Errorf("the epoch is %d, resources without a mark would refuse tokens of epoch %d: %w",
				epoch, atLeast, fencing.ErrEpochStep))
		}
		if !ours {
			was = epoch
		}
		// Without the comparison a late request could lower an epoch that was raised further in the meantime.
		resp, err := kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", mod)).
			Then(clientv3.OpPut(key, strconv.FormatInt(atLeast, 10))).
			Commit()
		if err != nil {
			ours = ours || etcderr.Classify(err) == etcderr.Unknown
			return err
		}
		if !resp.Succeeded {
			return retry.Again(errEpochChanged)
		}
		now, ours = atLeast, true
		return nil
	})
	if err != nil {
		now, err = 0, epochError(fmt.Sprintf("bump the epoch to %d", atLeast), key, "readwrite", err)
	}
	if ours {
		audit.Tell(ctx, a, audit.Record{
			Event: audit.Bumped, Key: key, Detail: fmt.Sprintf("epoch %d → %d", was, atLeast), Err: err,
		})
	}
	return now, err
}

var errEpochChanged = errors.New("another process changed the epoch at the same time")

// Epoch returns the epoch of a namespace ("" is "holdfast"), 0 if none was set, by
// a linearizable read. Errors are those of [BumpEpoch].
func Epoch(ctx context.Context, kv clientv3.KV, namespace string) (int64, error) {
	key, err := epochKey(ctx, kv, namespace)
	if err != nil {
		return 0, err
	}
	epoch, _, err := readEpoch(ctx, kv, key)
	if err != nil {
		err = epochError("read the epoch", key, "read", err)
	}
	return epoch, err
}

// epochKey returns the key of a namespace's epoch, unless an argument is invalid.
func epochKey(ctx context.Context, kv clientv3.KV, namespace string) (string, error) {
	switch {
	case ctx == nil:
		return "", errNilContext
	case kv == nil:
		return "", errNilKV
	}
	namespace, err := names.Namespace(namespace)
	if err != nil {
		return "", err
	}
	return names.EpochKey(namespace), nil
}

func readEpoch(ctx context.Context, kv clientv3.KV, key string) (epoch, mod int64, err error) {
	resp, err := kv.Get(ctx, key)
	if err != nil || len(resp.Kvs) == 0 {
		return 0, 0, err
	}
	got := resp.Kvs[0]
	epoch, err = strconv.ParseInt(string(got.Value), 10, 64)
	if err != nil || epoch < 0 || epoch > maxEpoch {
		return 0, 0, retry.Final(fmt.Errorf("the value %.64q is not a number from 0 to %d; it was left unchanged",
			got.Value, maxEpoch))
	}
	return epoch, got.ModRevision, nil
}

// epochError names the key and, if access was denied, the permission to grant.
func epochError(what, key, permission string, err error) error {
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return fmt.Errorf("etcdfence: %s at %s: run \"etcdctl role grant-permission ROLE %s %s\": %w",
			what, names.Quote(key), permission, key, err)
	}
	return fmt.Errorf("etcdfence: %s at %s: %w", what, names.Quote(key), err)
}
