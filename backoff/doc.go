// Package backoff holds the two decisions that everything in holdfast which
// talks to etcd has to take when a request fails: what may have happened on the
// server, and how long to wait before trying again. They are taken here and
// nowhere else.
//
// # What may have happened
//
// [Classify] sorts the errors of etcd and gRPC by what they say about a request
// that changes something. The class that matters most is [Unknown]: there was
// no answer, so the request may have been carried out, may be carried out later
// (seconds later, out of the socket of a paused server), or may be lost. Only
// what is known to have been refused before etcd acted is given another class;
// an error nobody here has heard of is Unknown too.
//
// [Retryable] answers a different question: is it worth sending again? It is
// meant for reads, and for writes that may safely be carried out twice.
//
// # How long to wait
//
// [Policy] is exponential backoff with full jitter: before repetition n
// (from 0) the pause is drawn evenly from [0, min(Max, Initial·Multiplierⁿ)).
// Clients that failed together therefore do not come back together. [Retry]
// runs an operation under a policy until it succeeds, fails in a way that must
// not be repeated, or its context ends. Nothing else bounds it: no number of
// attempts and no elapsed time, so always give it a context that ends.
//
// # What is not guaranteed
//
// Retry reports the last attempt. If an earlier one ended with an unknown
// outcome and a later one was refused, the error says refused. An operation
// that changes something has to remember the earlier one itself:
//
//	var ambiguous bool
//	err := backoff.Retry(ctx, policy, func(ctx context.Context) error {
//		_, err := kv.Txn(ctx).If(notThere).Then(put).Commit()
//		ambiguous = ambiguous || etcderr.Classify(err) == etcderr.Unknown
//		return err
//	})
//
// A request can also be sent more often than Retry calls the operation. When a
// server or proxy answers DeadlineExceeded or Canceled while the context of the
// request is alive, etcd's own client sends the same request again, writes
// included, up to 100 times, and reports only the last answer.
package backoff
