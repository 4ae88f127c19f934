package etcderr

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/retry"
)

// Class is what an error says about a request that changes something.
type Class int

// The classes. The class of joined errors is the last one in this order that
// occurs among them.
const (
	// OK is the class of a nil error: the request was carried out.
	OK Class = iota

	// Transient: refused before etcd did anything, for a reason that passes.
	Transient

	// Permanent: refused by etcd or the client, for a reason that stays. Nothing was done.
	Permanent

	// Unauthorized: the credentials are missing, wrong or insufficient. Nothing was done.
	Unauthorized

	// LeaseGone: the lease does not exist, nor do its keys. Nothing was done.
	LeaseGone

	// Unknown: the request may have been carried out, or may be later. Also: errors that are not recognized.
	Unknown
)

// String returns the class as logs have it, such as "lease gone".
func (c Class) String() string {
	switch c {
	case OK:
		return "ok"
	case Transient:
		return "transient"
	case Permanent:
		return "permanent"
	case Unauthorized:
		return "unauthorized"
	case LeaseGone:
		return "lease gone"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// Classify returns what err says about the request that failed with it. It recognizes gRPC status errors, etcd's
// rpctypes errors, context errors and holdfast.ErrOutcomeUnknown, also wrapped and joined.
//
// Unknown are also an exhausted quota (rpctypes.ErrNoSpace), since the request that first exceeds it is carried out;
// "no leader", which also ends streams whose requests have been passed on; and a failed TLS handshake, for which etcd's
// client returns only the end of the context: see ErrNotConnected.
func Classify(err error) Class { return Class(retry.Classify(err)) }

// Retryable reports whether the same request is worth sending again, provided that carrying it out twice does no harm:
// class Transient, and errors of class Unknown that may pass. The end of a context may have been that of one attempt: a
// loop has to check its own context as well.
//
// Not retryable are nil, holdfast.ErrOutcomeUnknown, an exhausted quota, messages that are too large, a closed client,
// errors that are not recognized, and any that is marked with Permanent of github.com/cenkalti/backoff/v4.
func Retryable(err error) bool {
	j := retry.Judge(err)
	return j.Known && j.Again
}

// Pending reports whether the request that failed with err may still be carried out later: class Unknown, except for an
// exhausted quota alone, which is a reply.
func Pending(err error) bool { return retry.Pending(err) }
