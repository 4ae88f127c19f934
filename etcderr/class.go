package etcderr

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Class is what an error says about a request that changes something.
type Class int

// The classes. The class of joined errors is the last one in this order that
// occurs among them.
const (
	// OK is the class of a nil error: the request was carried out.
	OK Class = iota

	// Transient: etcd refused the request before doing anything, for a reason that
	// passes. The same request may be sent again.
	Transient

	// Permanent: etcd refused the request for a reason that stays, or the client
	// refused to send it. Nothing was done.
	Permanent

	// Unauthorised: the credentials are missing, wrong or insufficient. Nothing was
	// done.
	Unauthorised

	// LeaseGone: the lease that the request names does not exist (any more).
	// Nothing was done, and the keys attached to the lease are gone.
	LeaseGone

	// Unknown: the request may have been carried out, or may be carried out later.
	// It is also the class of errors that are not recognised.
	Unknown
)

// String returns the class as it is written in logs, such as "lease gone".
func (c Class) String() string {
	switch c {
	case OK:
		return "ok"
	case Transient:
		return "transient"
	case Permanent:
		return "permanent"
	case Unauthorised:
		return "unauthorised"
	case LeaseGone:
		return "lease gone"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// Classify returns what err, the error of a request that changes something, says
// about that request. It recognises gRPC status errors, etcd's rpctypes errors,
// context errors and holdfast.ErrOutcomeUnknown, also wrapped and joined.
//
//   - An exhausted database quota (rpctypes.ErrNoSpace) is Unknown: the request
//     that first exceeds the quota is carried out and still answered with that
//     error.
//   - "No leader" is Unknown. A single request made with
//     clientv3.WithRequireLeader is refused before it is read (see
//     [LeaderRequired]), but a stream of renewals can end with the same error
//     after one of them was passed on.
//   - A TLS handshake that fails (wrong CA, refused client certificate) is
//     Unknown: etcd's client waits for a connection until the context ends and
//     returns the context's error. See [WithConnection].
func Classify(err error) Class {
	if err == nil {
		return OK
	}
	if j := judge(err); j.known {
		return j.class
	}
	return Unknown
}

// Retryable reports whether the same request is worth sending again, provided
// that carrying it out twice does no harm: a read, or a write that its
// comparisons make idempotent. That is true for class [Transient], and for
// errors of class [Unknown] that may pass.
//
// The end of a context counts as passing, since it may have been the context of
// one attempt; a loop has to check its own context as well, as backoff.Retry
// does. Not retryable are nil, holdfast.ErrOutcomeUnknown (its sender decided not
// to send again), an exhausted quota, messages that are too large, a closed
// client, and errors that are not recognised.
//
// The marks of backoff.Again and backoff.Final override this; they do not change
// the class.
func Retryable(err error) bool {
	j := judge(err)
	return j.known && j.again
}

// Recognised reports whether Classify knows err, rather than calling it Unknown
// for lack of knowledge.
func Recognised(err error) bool { return judge(err).known }

// Pending reports whether the request that failed with err may still be carried
// out later. That is true for class [Unknown], except for an exhausted quota
// alone: etcd has answered, so the request was carried out or never will be.
func Pending(err error) bool {
	j := judge(err)
	return err != nil && (!j.known || j.class == Unknown && !j.settled)
}

// LeaderRequired returns err as an error of class [Transient] if it is "no
// leader" and nothing else, and unchanged otherwise. Use it for a single request,
// not a stream, that was made with clientv3.WithRequireLeader: a member refuses
// such a request before it reads it.
func LeaderRequired(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) { // stops at joined errors
		if rpctypes.Error(e) == rpctypes.ErrNoLeader {
			return &refusedError{err}
		}
	}
	return err
}

// Mark is an error that decides by itself whether its request is sent again. The
// error it wraps decides the class. See backoff.Again.
type Mark interface {
	error
	Again() bool
	Unwrap() error
}
