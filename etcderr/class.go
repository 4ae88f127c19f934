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

	// Transient: refused before etcd did anything, for a reason that passes.
	Transient

	// Permanent: refused by etcd or the client, for a reason that stays. Nothing was done.
	Permanent

	// Unauthorised: the credentials are missing, wrong or insufficient. Nothing was done.
	Unauthorised

	// LeaseGone: the lease does not exist, nor do its keys. Nothing was done.
	LeaseGone

	// Unknown: the request may have been carried out, or may be later. Also: errors that are not recognised.
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
	case Unauthorised:
		return "unauthorised"
	case LeaseGone:
		return "lease gone"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// Classify returns what err says about the request that failed with it. It recognises gRPC status errors, etcd's
// rpctypes errors, context errors and holdfast.ErrOutcomeUnknown, also wrapped and joined.
//
// Unknown are also an exhausted quota (rpctypes.ErrNoSpace), since the request that first exceeds it is carried out;
// "no leader", except for single requests: see LeaderRequired; and a failed TLS handshake, for which etcd's client
// returns only the end of the context: see WithConnection.
func Classify(err error) Class {
	if err == nil {
		return OK
	}
	if j := judge(err); j.known {
		return j.class
	}
	return Unknown
}

// Retryable reports whether the same request is worth sending again, provided that carrying it out twice does no harm:
// class Transient, and errors of class Unknown that may pass. The end of a context may have been that of one attempt: a
// loop has to check its own context as well.
//
// Not retryable are nil, holdfast.ErrOutcomeUnknown, an exhausted quota, messages that are too large, a closed client,
// and errors that are not recognised. The marks of backoff.Again and backoff.Final override this.
func Retryable(err error) bool {
	j := judge(err)
	return j.known && j.again
}

// Recognised reports whether Classify knows err.
func Recognised(err error) bool { return judge(err).known }

// Pending reports whether the request that failed with err may still be carried out later: class Unknown, except for an
// exhausted quota alone, which is a reply.
func Pending(err error) bool {
	j := judge(err)
	return err != nil && (!j.known || j.class == Unknown && !j.settled)
}

// LeaderRequired returns err as an error of class Transient if it is "no leader" and nothing else. Use it for a single
// request, not a stream, made with clientv3.WithRequireLeader: a member refuses it before it reads it.
func LeaderRequired(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) { // stops at joined errors
		if rpctypes.Error(e) == rpctypes.ErrNoLeader {
			return &refusedError{err}
		}
	}
	return err
}

// Mark is an error that decides whether its request is sent again; the error it wraps decides the class. See
// backoff.Again.
type Mark interface {
	error
	Again() bool
	Unwrap() error
}
