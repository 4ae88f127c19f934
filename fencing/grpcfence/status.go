package grpcfence

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/fencing"
)

// Domain is the domain of the ErrorInfo in a refusal.
const Domain = "fencing.holdfast"

// The reasons in a refusal's ErrorInfo. Its metadata are, as far as they are
// known, "resource", "name", "want" (OTHER_NAME), "token" and "mark" (STALE), in
// the text forms of package fencing.
const (
	ReasonStale     = "STALE"
	ReasonOtherName = "OTHER_NAME"
	ReasonMissing   = "MISSING"
	ReasonMalformed = "MALFORMED"
	ReasonStore     = "STORE"
	ReasonResource  = "RESOURCE"
)

// ToStatus returns the status error with which err, a guard's refusal, is
// answered: for handlers behind [NewRequire] or [NewFilter] whose own guard has
// refused. What a store said is not in it. ToStatus(nil) is nil.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	var (
		below *fencing.MarkError
		other *fencing.NameError
		own   *resourceError
	)
	switch {
	case errors.As(err, &own):
		return refusal(codes.Internal, ReasonResource, "the server cannot tell what the call writes to")
	case errors.As(err, &below):
		return refusal(codes.FailedPrecondition, ReasonStale, below.Error(),
			"resource", below.Resource, "name", below.Claim.Name,
			"token", below.Claim.Token.String(), "mark", below.Mark.String())
	case errors.Is(err, fencing.ErrStale):
		return refusal(codes.FailedPrecondition, ReasonStale, err.Error())
	case errors.As(err, &other):
		return refusal(codes.FailedPrecondition, ReasonOtherName, other.Error(),
			"resource", other.Resource, "name", other.Got, "want", other.Want)
	case errors.Is(err, fencing.ErrBadClaim): // before ErrNoToken: a token of zero is both
		return refusal(codes.InvalidArgument, ReasonMalformed, err.Error())
	case errors.Is(err, fencing.ErrNoToken):
		return refusal(codes.InvalidArgument, ReasonMissing, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return refusal(codes.Unavailable, ReasonStore, "fencing tokens cannot be compared now; nothing was done")
}

// commitFailed is for a store that failed after the handler had succeeded.
func commitFailed(error) error {
	return status.Error(codes.Unknown, "the work was done, and its store could not keep it or cannot tell")
}

func refusal(code codes.Code, reason, message string, metadata ...string) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: Domain, Metadata: make(map[string]string, len(metadata)/2)}
	for i := 0; i < len(metadata); i += 2 {
		// Not everything is UTF-8 that can be a name, and protobuf wants that.
		info.Metadata[metadata[i]] = strings.ToValidUTF8(metadata[i+1], "\uFFFD")
	}
	s := status.New(code, strings.ToValidUTF8(message, "\uFFFD"))
	if with, err := s.WithDetails(info); err == nil {
		s = with
	}
	return s.Err()
}

// Error is a refusal as the client sees it. errors.Is finds [fencing.ErrStale],
// [fencing.ErrOtherName], [fencing.ErrNoToken] (MISSING) or
// [fencing.ErrBadClaim] in it, according to its reason, and none of them for
// STORE and RESOURCE. status.FromError and status.Code see through it.
type Error struct {
	Reason   string
	Metadata map[string]string
	Err      error // the status error
}

func (e *Error) Error() string { return fmt.Sprintf("grpcfence: refused: %s: %v", e.Reason, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is find the reason.
func (e *Error) Is(target error) bool {
	switch e.Reason {
	case ReasonStale:
		return target == fencing.ErrStale
	case ReasonOtherName:
		return target == fencing.ErrOtherName
	case ReasonMissing:
		return target == fencing.ErrNoToken
	case ReasonMalformed:
		return target == fencing.ErrBadClaim
	}
	return false
}

// FromError returns an *[Error] if err is a status with a refusal in its
// details, and any other err as it is. The client interceptors do that.
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
