package grpcfence

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
)

// Domain is the domain of the ErrorInfo in a refusal.
const Domain = "fencing.holdfast"

// The reasons in the ErrorInfo of a refusal. Its metadata are, if they are known,
// "resource", "name", "want" (OTHER_NAME), "token" and "mark" (STALE).
const (
	ReasonStale     = "STALE"
	ReasonOtherName = "OTHER_NAME"
	ReasonMissing   = "MISSING"
	ReasonMalformed = "MALFORMED"
	ReasonStore     = "STORE"
	ReasonResource  = "RESOURCE"
	ReasonUnknown   = "OUTCOME_UNKNOWN"
)

// ToStatus returns the status error for err, for handlers behind [NewRequire] or [NewFilter] whose own
// guard failed. The code is Unavailable only if err proves that nothing was done. That does not make
// a client's retryPolicy safe: see "Retries". Errors of a store are not quoted; a
// refusal is, whole if there is no *fencing.MarkError or *fencing.OtherNameError in it. ToStatus(nil) is nil.
func ToStatus(err error) error {
	if errors.As(err, new(*fence.TargetError)) {
		return refusal(codes.Internal, ReasonResource, "the server cannot tell what the call writes to")
	}
	switch fence.VerdictOf(err) {
	case fence.Done:
		return nil
	case fence.Stale:
		var below *fencing.MarkError
		if errors.As(err, &below) {
			return refusal(codes.FailedPrecondition, ReasonStale, below.Error(),
				"resource", below.Resource, "name", below.Claim.Name,
				"token", below.Claim.Token.String(), "mark", below.Mark.String())
		}
		return refusal(codes.FailedPrecondition, ReasonStale, err.Error())
	case fence.OtherName:
		var other *fencing.OtherNameError
		if errors.As(err, &other) {
			return refusal(codes.FailedPrecondition, ReasonOtherName, other.Error(),
				"resource", other.Resource, "name", other.Got, "want", other.Want)
		}
		return refusal(codes.FailedPrecondition, ReasonOtherName, err.Error())
	case fence.BadClaim:
		return refusal(codes.InvalidArgument, ReasonMalformed, err.Error())
	case fence.NoClaim:
		return refusal(codes.InvalidArgument, ReasonMissing, err.Error())
	case fence.NothingDone:
		return refusal(contextCode(err, codes.Unavailable), ReasonStore,
			"fencing tokens cannot be compared now; nothing was done")
	default:
		return refusal(contextCode(err, codes.Unknown), ReasonUnknown,
			"the work may have been done, or may be done later; read back before repeating it")
	}
}

// contextCode returns the code of a context's error in err, otherwise if there is none.
func contextCode(err error, otherwise codes.Code) codes.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return otherwise
}

func refusal(code codes.Code, reason, message string, metadata ...string) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: Domain, Metadata: make(map[string]string, len(metadata)/2)}
	for i := 0; i < len(metadata); i += 2 {
		// protobuf requires UTF-8; a name can be any bytes.
		info.Metadata[metadata[i]] = strings.ToValidUTF8(metadata[i+1], "\uFFFD")
	}
	s := status.New(code, strings.ToValidUTF8(message, "\uFFFD"))
	if with, err := s.WithDetails(info); err == nil {
		s = with
	}
	return s.Err()
}

// Error is a refusal as the client sees it. By its reason, errors.Is finds [fencing.ErrStale],
// [fencing.ErrOtherName], [holdfast.ErrNoToken] (MISSING), [fencing.ErrBadClaim] (MALFORMED),
// holdfast.ErrOutcomeUnknown (OUTCOME_UNKNOWN), or [fencing.ErrNotDone] (STORE, may be repeated;
// RESOURCE, the server cannot name the resource). status.FromError and status.Code see through it.
type Error struct {
	Reason   string
	Metadata map[string]string
	Err      error // the status error
}

func (e *Error) Error() string { return fmt.Sprintf("grpcfence: %s: %v", e.Reason, e.Err) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error that the reason stands for.
func (e *Error) Is(target error) bool {
	switch e.Reason {
	case ReasonStale:
		return target == fencing.ErrStale
	case ReasonOtherName:
		return target == fencing.ErrOtherName
	case ReasonMissing:
		return target == holdfast.ErrNoToken
	case ReasonMalformed:
		return target == fencing.ErrBadClaim
	case ReasonStore, ReasonResource:
		return target == fencing.ErrNotDone
	case ReasonUnknown:
		return target == holdfast.ErrOutcomeUnknown
	}
	return false
}

// FromError returns an *[Error] if err is a refusal of this package, and otherwise
// err unchanged. The client interceptors call it.
func FromError(err error) error {
	if err == nil || errors.As(err, new(*Error)) {
		return err
	}
	s, ok := status.FromError(err)
	if !ok || s.Code() == codes.OK {
		return err
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == Domain {
			return &Error{Reason: info.Reason, Metadata: info.Metadata, Err: err}
		}
	}
	return err
}
