// Package retry says what an error of etcd means, and how long a loop pauses before it asks again.
//
// judge.go judges an error for package etcderr, the retries and the requests of this module, marks errors that a loop
// decides on by itself, and says why a client is not connected; jitter.go draws pauses as package backoff documents
// them.
package retry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	cenkalti "github.com/cenkalti/backoff/v4"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
)

// Class is an etcderr.Class, with the same numbers.
type Class int

// The classes, see package etcderr. Of joined errors the last one in this order counts.
const (
	OK Class = iota
	Transient
	Permanent
	Unauthorized
	LeaseGone
	Unknown
)

// Judgment is what an error says. If it is not known, it says nothing.
type Judgment struct {
	Known bool
	Again bool // the same request is worth sending again

	class   Class
	settled bool // for class Unknown: etcd has answered, so nothing is carried out later
}

// Classify is etcderr.Classify: OK for nil, Unknown for one that is not known.
func Classify(err error) Class {
	if err == nil {
		return OK
	}
	if j := Judge(err); j.Known {
		return j.class
	}
	return Unknown
}

// Pending is etcderr.Pending.
func Pending(err error) bool {
	j := Judge(err)
	return err != nil && (!j.Known || j.class == Unknown && !j.settled)
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

func known(class Class, again bool) Judgment {
	return Judgment{Known: true, class: class, Again: again}
}

// and combines the judgments on two branches of a join: the graver class, and
// retryable only if both are.
func (j Judgment) and(k Judgment) Judgment {
	switch {
	case !j.Known:
		return k
	case !k.Known:
		return j
	}
	both := known(max(j.class, k.class), j.Again && k.Again)
	both.settled = (j.class != Unknown || j.settled) && (k.class != Unknown || k.settled)
	return both
}

// Judge walks the tree of err from the outside in. On each branch, the first
// error that says anything decides. (errors.As would stop at the first branch of
// a join.)
func Judge(err error) Judgment {
	switch e := err.(type) {
	case nil:
		return Judgment{}
	case *holdfast.LostError: // what it wraps is about a renewal
		return known(Permanent, false)
	case *cenkalti.PermanentError:
		return Judgment{Known: true, class: Classify(e.Err), settled: !Pending(e.Err)}
	case *refusedError:
		return known(Transient, true)
	case *againError: // it decides whether the request is sent again; the error that it wraps decides the class
		return Judgment{Known: true, class: Classify(e.err), Again: true, settled: !Pending(e.err)}
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
		return Judge(e.Unwrap())
	case interface{ Unwrap() []error }:
		var j Judgment
		for _, branch := range e.Unwrap() {
			j = j.and(Judge(branch))
		}
		return j
	}
	// etcd's client turns the reason for which the server canceled a watch into a
	// plain error.
	if e, ok := etcdError(err.Error()); ok {
		return judgeStatus(e.Code(), e.Error())
	}
	return Judgment{}
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
var byText = map[string]Judgment{
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
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace): {Known: true, class: Unknown, settled: true},
	// Under the CORRUPT alarm no member applies anything.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCCorrupt): known(Permanent, false),

	rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseNotFound): known(LeaseGone, false),

	rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty):  known(Unauthorized, false),
	rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthFailed): known(Unauthorized, false),

	// The text of grpc.ErrClientConnClosing. The outcome of requests in flight is
	// unknown; later ones cannot succeed.
	"grpc: the client connection is closing": known(Unknown, false),
}

// judgeStatus judges the status that a server, a proxy or the gRPC library
// returned. The text comes first: etcd sends some errors, such as "too many
// requests", with the code Unknown.
func judgeStatus(code codes.Code, text string) Judgment {
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
		return known(Unauthorized, false)
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

// Again marks err: backoff.Retry retries it, whatever its class. Again(nil) is nil.
func Again(err error) error {
	if err == nil {
		return nil
	}
	return &againError{err}
}

// Final marks err: backoff.Retry does not retry it. Of nested marks the outermost counts. Final(nil) is nil.
func Final(err error) error { return cenkalti.Permanent(err) }

// againError is what Again returns.
type againError struct{ err error }

func (e *againError) Error() string { return e.err.Error() }
func (e *againError) Unwrap() error { return e.err }

// Unmark removes the outermost marks of err. To remove a mark further down would lose the errors around it.
func Unmark(err error) error {
	for {
		switch e := err.(type) { //nolint:errorlint // the outermost marks only
		case *againError:
			err = e.err
		case *cenkalti.PermanentError:
			err = e.Err
		default:
			return err
		}
	}
}

// ContextErr returns ctx.Err(), joined with context.Cause(ctx) if that says more.
func ContextErr(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, cause):
		return err
	case errors.Is(cause, err):
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// OfCaller returns err, the error of a call that ctx has ended. ctx may be that of another lock, and end with its loss
// or its release. The error says so in words alone: what errors.Is finds of a loss is about the lock of the call.
func OfCaller(ctx context.Context, err error) error {
	for _, end := range []error{holdfast.ErrLost, holdfast.ErrReleased, holdfast.ErrClosed} {
		if errors.Is(err, end) {
			return fmt.Errorf("%w: %s", ctx.Err(), err.Error())
		}
	}
	return err
}

// ErrNotConnected is etcderr.ErrNotConnected.
var ErrNotConnected = errors.New("no connection to etcd")

// askConnection bounds the question to a connection. The answer is immediate, unless the connection has just come up:
// then a member is asked for its status.
const askConnection = 100 * time.Millisecond

// maintenanceStatus is etcd's Status RPC. Its constant in etcdserverpb is new in 3.7.
const maintenanceStatus = "/etcdserverpb.Maintenance/Status"

// WithConnection adds to err, the end of a context, why conn is not connected, or that it is still connecting. conn is
// the ActiveConnection of a client. WithConnection returns other errors unchanged, and err if conn is nil or connected.
//
// etcd's client waits for a connection and returns only the context's error. gRPC gives the reason only to calls that
// do not wait, so WithConnection makes such a call, which is not sent.
func WithConnection(conn *grpc.ClientConn, err error) error {
	if conn == nil || errors.Is(err, ErrNotConnected) ||
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	switch conn.GetState() {
	case connectivity.TransientFailure:
	case connectivity.Connecting: // one endpoint at least has neither accepted nor refused
		return fmt.Errorf("%w: %w: still connecting, no answer so far", err, ErrNotConnected)
	default:
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askConnection)
	defer cancel()
	why := conn.Invoke(ctx, maintenanceStatus, &pb.StatusRequest{}, &pb.StatusResponse{}, grpc.WaitForReady(false))
	if status.Code(why) != codes.Unavailable {
		return err // it is connected by now, or cannot say
	}
	// Only the text: the error is about another request, and must not be classified.
	return fmt.Errorf("%w: %w: %s", err, ErrNotConnected, status.Convert(why).Message())
}
