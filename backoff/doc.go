// Package backoff retries operations with exponential backoff and full jitter.
//
// Before retry n (from 0) a [Policy] draws the pause evenly from [0, min(Max, Initial·Multiplierⁿ)), so clients
// that failed together do not come back together. [Retry] runs an operation until it succeeds, fails with an error
// that must not be retried, or its context ends. Nothing else bounds it, neither a number of attempts nor elapsed
// time: always pass a context that ends. Package etcderr decides which errors are retried; [Again] and [Final]
// override it for a single error.
//
// # What is not guaranteed
//
// Retry reports the last attempt. If an earlier attempt ended with an unknown outcome and a later one was refused,
// the error says refused. An operation that changes something has to remember the earlier one:
//
//	var unknown bool
//	err := backoff.Retry(ctx, policy, func(ctx context.Context) error {
//		_, err := kv.Txn(ctx).If(absent).Then(put).Commit()
//		unknown = unknown || etcderr.Classify(err) == etcderr.Unknown
//		return err
//	})
package backoff
