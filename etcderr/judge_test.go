package etcderr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	. "github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/retry"
)

func TestErrorsFromOutsideEtcd(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want verdict
	}{
		"canceled":              {context.Canceled, unknown},
		"deadline":              {context.DeadlineExceeded, unknown},
		"wrapped deadline":      {fmt.Errorf("x: %w", context.DeadlineExceeded), unknown},
		"end of a stream":       {io.EOF, unknown},
		"outcome unknown":       {fmt.Errorf("put: %w: %w", holdfast.ErrOutcomeUnknown, rpctypes.ErrTimeout), unknownStay},
		"not recognized":        {errors.New("boom"), unknownStay},
		"status OK is no error": {fmt.Errorf("x: %w", okStatus{}), unknownStay},
		"client closed":         {status.Error(codes.Canceled, "grpc: the client connection is closing"), unknownStay},
		"own request too large": {
			status.Error(codes.ResourceExhausted, "trying to send message larger than max (3 vs. 2)"), permanent,
		},
		"reply too large": {
			status.Error(codes.ResourceExhausted, "grpc: received message larger than max (3 vs. 2)"), unknownStay,
		},
		"raw too many requests": {status.Error(codes.Unknown, "etcdserver: too many requests"), transient},
		"watch not permitted": {
			status.Error(codes.FailedPrecondition, rpctypes.ErrGRPCPermissionDenied.Error()), unauthorized,
		},
		"watch, plain":            {errors.New(rpctypes.ErrGRPCPermissionDenied.Error()), unauthorized},
		"text inside other text":  {errors.New("said: etcdserver: permission denied"), unknownStay},
		"nothing in a join":       {errors.Join(errors.New("a"), errors.New("b")), unknownStay},
		"nil inside a wrapper":    {fmt.Errorf("x: %w", nil), unknownStay},
		"an error that wraps nil": {wrapsNil{}, unknownStay},
	} {
		t.Run(name, func(t *testing.T) { check(t, c.err, c.want) })
	}
	check(t, nil, verdict{OK, false})
}

type okStatus struct{}

func (okStatus) Error() string              { return "ok?" }
func (okStatus) GRPCStatus() *status.Status { return nil }

type wrapsNil struct{}

func (wrapsNil) Error() string { return "wraps nil" }
func (wrapsNil) Unwrap() error { return nil }

// If one of the joined errors leaves the outcome unknown, it is unknown; and if one is not retryable, the whole is not.
func TestJoinedErrorsHaveTheGravestClass(t *testing.T) {
	var (
		tooMany = rpctypes.ErrTooManyRequests
		denied  = rpctypes.ErrPermissionDenied
		gone    = rpctypes.ErrLeaseNotFound
		empty   = rpctypes.ErrEmptyKey
		timeout = rpctypes.ErrTimeout
		boom    = errors.New("boom")
	)
	for _, c := range []struct {
		errs []error
		want verdict
	}{
		{[]error{tooMany, boom}, transient},
		{[]error{tooMany, empty}, permanent},
		{[]error{empty, denied}, unauthorized},
		{[]error{denied, gone}, leaseGone},
		{[]error{gone, timeout}, unknownStay},
		{[]error{tooMany, context.Canceled}, unknown},
		{[]error{tooMany, holdfast.ErrOutcomeUnknown}, unknownStay},
		{[]error{boom, nil, timeout}, unknown},
	} {
		check(t, errors.Join(c.errs...), c.want)
		for i, j := 0, len(c.errs)-1; i < j; i, j = i+1, j-1 {
			c.errs[i], c.errs[j] = c.errs[j], c.errs[i]
		}
		check(t, fmt.Errorf("op: %w", errors.Join(c.errs...)), c.want)
	}
}

func TestMarksDecideRetriesAndNotTheClass(t *testing.T) {
	boom := errors.New("boom")
	check(t, retry.Final(rpctypes.ErrTimeout), verdict{Unknown, false})
	check(t, fmt.Errorf("x: %w", retry.Final(rpctypes.ErrTooManyRequests)), verdict{Transient, false})
	check(t, retry.Again(rpctypes.ErrLeaseNotFound), verdict{LeaseGone, true})
	check(t, retry.Again(boom), verdict{Unknown, true})
	check(t, retry.Final(retry.Again(rpctypes.ErrTimeout)), verdict{Unknown, false})
	check(t, retry.Again(fmt.Errorf("x: %w", retry.Final(rpctypes.ErrTimeout))), verdict{Unknown, true})
	check(t, errors.Join(rpctypes.ErrTimeout, retry.Final(boom)), verdict{Unknown, false})
	check(t, errors.Join(rpctypes.ErrTimeout, retry.Again(boom)), verdict{Unknown, true})
	if !errors.Is(retry.Again(boom), boom) || !errors.Is(retry.Final(boom), boom) ||
		retry.Again(boom).Error() != "boom" {
		t.Error("a mark hides what it marks")
	}
	if retry.Again(nil) != nil || retry.Final(nil) != nil {
		t.Error("a mark on nil is an error")
	}
}
