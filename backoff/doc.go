// Package backoff retries operations with exponential backoff and full jitter: before retry n (from 0) it pauses for a
// time drawn evenly from [0, min(Max, Initial·2ⁿ)). Nothing but the context bounds the number of attempts:
// pass one that ends. Package etcderr decides which errors are retried.
//
// [Retry] reports the last attempt. If an earlier one ended with an unknown outcome and a later one was refused, the
// error says refused. An operation that changes something has to remember the earlier one:
//
//	var unknown bool
//	err := backoff.Retry(ctx, policy, func(ctx context.Context) error {
//		_, err := kv.Txn(ctx).If(absent).Then(put).Commit()
//		unknown = unknown || etcderr.Classify(err) == etcderr.Unknown
//		return err
//	})
package backoff
