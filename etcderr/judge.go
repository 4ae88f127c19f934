package etcderr

import (
	"context"
	"errors"
	"io"
	"strings"

	cenkalti "github.com/cenkalti/backoff/v4"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
)

// judgement is what one error in a tree of errors says. If it is not known, it
// says nothing.
type judgement struct {
	known bool
	class Class
	again bool

	settled bool // for class Unknown: etcd has answered, so nothing is carried out later
}

func known(class Class, again bool) judgement {
	return judgement{known: true, class: class, again: again}
}

// and combines the judgements on two branches of a join: the graver class, and
// retryable only if both are.
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

// judge walks the tree of err from the outside in. On each branch, the first
// error that says anything decides. (errors.As would stop at the first branch of
// a join.)
func judge(err error) judgement {
	switch e := err.(type) {
	case nil:
		return judgement{}
	case *cenkalti.PermanentError:
		return judgement{known: true, class: Classify(e.Err), settled: !Pending(e.Err)}
	case *refusedError:
		return known(Transient, true)
	case Mark:
		return judgement{known: true, class: Classify(e.Unwrap()), again: e.Again(), settled: !Pending(e.Unwrap())}
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
	// etcd's client turns the reason for which the server canceled a watch into a
	// plain error.
	if e, ok := etcdError(err.Error()); ok {
		return judgeStatus(e.Code(), e.Error())
	}
	return judgement{}
}

// etcdError finds the rpctypes error with the given text.
func etcdError(text string) (rpctypes.EtcdError, bool) {
	// The reason for which a watch was canceled is a whole status error in
	// writing: "rpc error: code = PermissionDenied desc = etcdserver: …".
	if strings.HasPrefix(text, "rpc error: code = ") {
		if _, desc, ok := strings.Cut(text, " desc = "); ok {
			text = desc
		}
	}
	e, ok := rpctypes.Error(errors.New(text)).(rpctypes.EtcdError)
	return e, ok
}

// byText has the errors of etcd whose status code would mislead. The rest of
// rpctypes is judged by code; a test covers all of it.
var byText = map[string]judgement{
	// Refused by the member asked, before the request was proposed.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests): known(Transient, true),
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNotCapable):             known(Transient, true), // starting up
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner): known(Transient, true), // another member may be no learner
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNotLeader):              known(Transient, true),
	// Users or roles have changed since the request's token was issued. All members
	// find that out alike when they apply the request, before it has an effect (for
	// a read: after). The client then fetches a new token.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision): known(Transient, true),

	// Once the alarm is raised, nothing more is written. But the request that
	// raises it is written first and then answered with this error: etcd's
	// quotaApplierV3 applies it and then replaces the result.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace): {known: true, class: Unknown, settled: true},
	// Under the CORRUPT alarm no member applies anything.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCCorrupt): known(Permanent, false),

	rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseNotFound): known(LeaseGone, false),

	rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty):  known(Unauthorised, false),
	rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthFailed): known(Unauthorised, false),

	// The text of grpc.ErrClientConnClosing. The outcome of requests in flight is
	// unknown; later ones cannot succeed.
	"grpc: the client connection is closing": known(Unknown, false),
}

// judgeStatus judges the status that a server, a proxy or the gRPC library
// returned. The text comes first: etcd sends some errors, such as "too many
// requests", with the code Unknown.
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
			// Refused by the client, not sent.
			return known(Permanent, false)
		case strings.Contains(text, "larger than max"):
			// Either the server refused the request, or the client refused the
			// answer; in the second case the request was carried out.
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

// refusedError is what LeaderRequired returns.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }
