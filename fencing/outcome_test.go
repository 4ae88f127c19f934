package fencing_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
)

// Whatever leaves the outcome open is reported as open, with its cause; and the
// writer does not try again.
func TestUnansweredWriteHasAnUnknownOutcome(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		for _, cause := range []error{
			rpctypes.ErrTimeout, rpctypes.ErrLeaderChanged, rpctypes.ErrNoLeader, rpctypes.ErrStopped,
			rpctypes.ErrNoSpace, // etcd writes and then says so
			context.DeadlineExceeded, context.Canceled,
			status.Error(codes.Unavailable, "transport is closing"),
			errors.New("never heard of"),
		} {
			h, kv := holding(t)
			kv.after = func(context.Context) error { return cause } // done, and the answer lost
			err := write(t.Context(), fencing.NewFencedWriter(h))
			if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, cause) || errors.Is(err, fencing.ErrStale) {
				t.Errorf("%v became %v", cause, err)
			}
			if backoff.Retryable(err) {
				t.Errorf("%v would be sent again by backoff.Retry", err)
			}
			if kv.sent() != 1 {
				t.Errorf("%v: sent %d times", cause, kv.sent())
			}
			mustSay(t, err, "token 42")
		}
	})
}

func TestEndOfContextDuringWriteIsJoinedWithItsCause(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		for name, answer := range map[string]error{
			"replaced by the context's": context.Canceled, // what clientv3 does
			"hiding the context's":      rpctypes.ErrTimeout,
		} {
			t.Run(name, func(t *testing.T) {
				h, kv := holding(t)
				cause := errors.New("lock lost")
				ctx, cancel := context.WithCancelCause(t.Context())
				kv.before = func(context.Context) error { cancel(cause); return answer }
				err := write(ctx, fencing.NewFencedWriter(h))
				for _, want := range []error{holdfast.ErrOutcomeUnknown, context.Canceled, cause, answer} {
					if !errors.Is(err, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
				if n := strings.Count(err.Error(), "context canceled"); n != 1 {
					t.Errorf("%v says so %d times", err, n)
				}
			})
		}
	})
}

// What etcd refused before it acted is a failure and nothing more.
func TestRefusalByEtcdIsDefinite(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		for _, cause := range []error{
			rpctypes.ErrTooManyRequests, rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken,
			rpctypes.ErrLeaseNotFound, rpctypes.ErrDuplicateKey, rpctypes.ErrRequestTooLarge,
		} {
			h, kv := holding(t)
			kv.before = func(context.Context) error { return cause }
			err := write(t.Context(), fencing.NewFencedWriter(h))
			if !errors.Is(err, cause) || errors.Is(err, holdfast.ErrOutcomeUnknown) || errors.Is(err, fencing.ErrStale) {
				t.Errorf("%v became %v", cause, err)
			}
			if kv.sent() != 1 {
				t.Errorf("%v: sent %d times", cause, kv.sent())
			}
			mustSay(t, err, "token 42")
		}
	})
}

// Only etcd's own "no" is ErrStale. An answer that cannot be one leaves open
// what happened, and must not panic.
func TestAnswerOfAnotherFormIsAnUnknownOutcome(t *testing.T) {
	forEachWrite(t, func(t *testing.T, write func(context.Context, *fencing.FencedWriter) error) {
		for name, rewrite := range map[string]func(*clientv3.TxnResponse) *clientv3.TxnResponse{
			"nil":          func(*clientv3.TxnResponse) *clientv3.TxnResponse { return nil },
			"no responses": func(r *clientv3.TxnResponse) *clientv3.TxnResponse { r.Responses = nil; return r },
			"two responses": func(r *clientv3.TxnResponse) *clientv3.TxnResponse {
				r.Responses = append(r.Responses, r.Responses[0])
				return r
			},
			"nil response": func(r *clientv3.TxnResponse) *clientv3.TxnResponse { r.Responses[0] = nil; return r },
			"empty":        func(r *clientv3.TxnResponse) *clientv3.TxnResponse { r.Responses[0].Response = nil; return r },
		} {
			t.Run(name, func(t *testing.T) {
				h, kv := holding(t)
				kv.rewrite = rewrite
				if err := write(t.Context(), fencing.NewFencedWriter(h)); !errors.Is(err, holdfast.ErrOutcomeUnknown) {
					t.Errorf("error is %v", err)
				}
			})
		}
	})
}
