package backoff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	cenkalti "github.com/cenkalti/backoff/v4"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
)

// Class is what an error says about a request that changes something.
type Class int

// The classes. Where several errors are joined, the class of the whole is the
// last one in this order that occurs.
const (
	// OK is the class of a nil error: the request was carried out.
	OK Class = iota

	// Transient: etcd refused the request before it did anything, for a reason
	// that passes. The same request may be sent again.
	Transient

	// Permanent: etcd, or the client before it sent anything, refused the
	// request for a reason that stays. Nothing was done.
	Permanent

	// Unauthorised: the credentials are missing, wrong or not sufficient.
	// Nothing was done.
	Unauthorised

	// LeaseGone: the lease that the request names does not exist (any more).
	// Nothing was done, and whatever was attached to the lease is gone.
	LeaseGone

	// Unknown: the request may have been carried out, or may be yet. Also the
	// class of every error that is not recognised.
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

// Classify tells what err, returned by etcd's client for a request that changes
// something, says about that request. It recognises gRPC status errors, etcd's
// own rpctypes errors, context errors and holdfast.ErrOutcomeUnknown, also when they
// are wrapped or joined with others. Marks set by [Again] and [Final] make no
// difference to it.
//
// Three things to know:
//
//   - An exhausted database quota (rpctypes.ErrNoSpace) is Unknown: the request
//     that first crosses the quota while it is applied is carried out and
//     answered with that error all the same.
//   - "No leader" is Unknown. A request made with clientv3.WithRequireLeader is
//     refused before it is looked at (see [LeaderRequired]), but a stream that
//     carries renewals can be ended with the same error after one of them was
//     passed on.
//   - A TLS handshake that fails (a wrong CA, a client certificate that is not
//     accepted) never shows: etcd's client waits for a connection until the
//     context ends and replaces the error by the context's. It looks like an
//     endpoint that cannot be reached, and is Unknown.
func Classify(err error) Class {
	if err == nil {
		return OK
	}
	if j := judge(err); j.known {
		return j.class
	}
	return Unknown
}

// Retryable reports whether it is worth sending the same request again, given
// that being carried out twice does it no harm: reads, and writes made
// idempotent by their comparisons. That is so for errors of class [Transient],
// and for those of class [Unknown] that may pass by themselves.
//
// The end of a context counts as passing, since it may have been the context of
// a single attempt: a loop has to look at its own context as well, as [Retry]
// does. Not retryable are a nil error, holdfast.ErrOutcomeUnknown (its
// sender decided not to send again), an exhausted quota, messages
// that are too large, a closed client, and errors that are not recognised.
//
// Marks set by [Again] and [Final] override all of this.
func Retryable(err error) bool {
	j := judge(err)
	return j.known && j.again
}

// Pending reports whether the request that failed with err may yet be carried
// out, at any later time. That is so for class [Unknown], except for an
// exhausted quota alone: etcd has answered, so it has been carried out by now or
// never will be.
func Pending(err error) bool {
	j := judge(err)
	return err != nil && (!j.known || j.class == Unknown && !j.settled)
}

// LeaderRequired makes an error of class [Transient] of err if that says "no
// leader" and nothing else, and returns any other error as it is. It is for a
// single request, no stream, that was made with clientv3.WithRequireLeader: a
// member refuses such a request before it looks at it. LeaderRequired(nil) is
// nil.
func LeaderRequired(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) { // not into joined ones
		if rpctypes.Error(e) == rpctypes.ErrNoLeader {
			return &refusedError{err}
		}
	}
	return err
}

type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// judgement is what one error in a tree of errors says. Without known it says
// nothing.
type judgement struct {
	known bool
	class Class
	again bool

	settled bool // of class Unknown: answered, and not to be carried out later
}

func known(class Class, again bool) judgement {
	return judgement{known: true, class: class, again: again}
}

// and joins the judgements on two branches of a tree: the graver class, and
// sending again only if no branch speaks against it.
func (j judgement) and(k judgement) judgement {
	switch {
	case !j.known:
		return k
	case !k.known:
		return j
	}
	both := known(max(j.class, k.class), j.again && k.again)
	both.settled = (j.class != Unknown || j.settled) && (k.class != Unknown || k.settled)
	return both
}

// judge walks the tree of err from the outside in. The first error on each
// branch that says anything decides for its branch: errors.As would stop at the
// first branch of a join.
func judge(err error) judgement {
	switch e := err.(type) {
	case nil:
		return judgement{}
	case *cenkalti.PermanentError:
		return judgement{known: true, class: Classify(e.Err), settled: !Pending(e.Err)}
	case *refusedError:
		return known(Transient, true)
	case *againError:
		return judgement{known: true, class: Classify(e.err), again: true, settled: !Pending(e.err)}
	case rpctypes.EtcdError:
		return judgeStatus(e.Code(), e.Error())
	case interface{ GRPCStatus() *status.Status }:
		if s := e.GRPCStatus(); s.Code() != codes.OK {
			return judgeStatus(s.Code(), s.Message())
		}
	}
	switch err {
	case context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF:
		return known(Unknown, true)
	case holdfast.ErrOutcomeUnknown:
		return known(Unknown, false)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return judge(e.Unwrap())
	case interface{ Unwrap() []error }:
		var j judgement
		for _, branch := range e.Unwrap() {
			j = j.and(judge(branch))
		}
		return j
	}
	// etcd's client makes plain errors of the reason with which the server
	// cancelled a watch.
	if e, ok := etcdError(err.Error()); ok {
		return judgeStatus(e.Code(), e.Error())
	}
	return judgement{}
}

// etcdError finds the rpctypes error with the given text.
func etcdError(text string) (rpctypes.EtcdError, bool) {
	// The reason for which a watch was cancelled is a whole status error in
	// writing: "rpc error: code = PermissionDenied desc = etcdserver: …".
	if strings.HasPrefix(text, "rpc error: code = ") {
		if _, desc, ok := strings.Cut(text, " desc = "); ok {
			text = desc
		}
	}
	e, ok := rpctypes.Error(errors.New(text)).(rpctypes.EtcdError)
	return e, ok
}

// byText are the errors of etcd whose status code alone would mislead. The rest
// of rpctypes is judged by code; a test goes through all of it.
var byText = map[string]judgement{
	// Refused by the member asked, before the request was proposed.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests): known(Transient, true),
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNotCapable):             known(Transient, true), // starting up
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner): known(Transient, true), // the next member may be none
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNotLeader):              known(Transient, true),
	// Users or roles changed since the request's token was issued. Found out
	// when the request is applied, by all members alike, before it has an
	// effect; for reads afterwards. The client gets itself a new token.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision): known(Transient, true),

	// Once the alarm is raised nothing is written any more. But the request
	// that raises it while being applied is written first and then answered
	// with this error: etcd's quotaApplierV3 calls through and only then
	// replaces the result.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace): {known: true, class: Unknown, settled: true},
	// Under the CORRUPT alarm no member applies anything.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCCorrupt): known(Permanent, false),

	rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseNotFound): known(LeaseGone, false),

	rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty):  known(Unauthorised, false),
	rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthFailed): known(Unauthorised, false),

	// The text of grpc.ErrClientConnClosing. What was in flight is uncertain;
	// what comes after cannot succeed.
	"grpc: the client connection is closing": known(Unknown, false),
}

// judgeStatus judges what a server, a proxy or the gRPC library answered. The
// text goes first: etcd sends some of its errors with the code Unknown, the text
// being right ("too many requests" among them).
func judgeStatus(code codes.Code, text string) judgement {
	if e, ok := etcdError(text); ok {
		code, text = e.Code(), e.Error()
	}
	if j, ok := byText[text]; ok {
		return j
	}
	switch code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Unknown, codes.Internal, codes.Aborted:
		return known(Unknown, true)
	case codes.ResourceExhausted:
		switch {
		case strings.HasPrefix(text, "trying to send message larger than max"):
			// Said by the client of its own request.
			return known(Permanent, false)
		case strings.Contains(text, "larger than max"):
			// The request at the server's end, or the answer at ours: in the
			// second case it was carried out.
			return known(Unknown, false)
		}
		return known(Unknown, true) // HTTP/2's ENHANCE_YOUR_CALM, at any moment
	case codes.PermissionDenied, codes.Unauthenticated:
		return known(Unauthorised, false)
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition,
		codes.OutOfRange, codes.Unimplemented:
		return known(Permanent, false)
	}
	return known(Unknown, false)
}
