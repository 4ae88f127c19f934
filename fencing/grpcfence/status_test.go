package grpcfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
)

// Many clients are configured to repeat UNAVAILABLE. The increment takes effect, and its
// answer is lost.
func TestIncrementOfUnknownOutcomeIsNotRepeatedByTheClient(t *testing.T) {
	unanswered := fmt.Errorf("commit: %w", holdfast.ErrOutcomeUnknown)
	require := grpcfence.NewRequire(resourceOf, grpcfence.Options{})
	for name, c := range map[string]struct {
		g      *grpcfence.Server
		status error // of the handler
	}{
		"ToStatus":                     {require, grpcfence.ToStatus(unanswered)},
		"ToStatus of an unknown error": {require, grpcfence.ToStatus(errors.New("driver: bad connection"))},
		"NewGuard": {grpcfence.NewGuard(&transaction{commit: unanswered}, resourceOf,
			grpcfence.Options{}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var counter atomic.Int64
			svc := &service{put: func(context.Context, string) error { counter.Add(1); return c.status }}
			err := put(holding("lock/a", 5), repeating(t, svc, c.g), "a")
			if n := counter.Load(); n != 1 {
				t.Errorf("one call made the counter %d", n)
			}
			if status.Code(err) != codes.Unknown || !errors.Is(err, holdfast.ErrOutcomeUnknown) ||
				errors.Is(err, fencing.ErrNotDone) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCallThatHadNoEffectIsRepeatedByTheClient(t *testing.T) {
	var calls atomic.Int64
	svc := &service{put: func(context.Context, string) error {
		if calls.Add(1) == 1 {
			return grpcfence.ToStatus(fencing.NotDone(errors.New("etcd does not answer")))
		}
		return nil
	}}
	conn := repeating(t, svc, grpcfence.NewRequire(resourceOf, grpcfence.Options{}))
	if err := put(holding("lock/a", 5), conn, "a"); err != nil || calls.Load() != 2 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

// UNAVAILABLE is also what gRPC itself says of a connection that broke after the effect. The retry has the same
// claim, so no guard refuses it: only an idempotency key tells it from a second order.
func TestRetryPolicyRepeatsAnEffectWhoseReplyWasLost(t *testing.T) {
	for name, c := range map[string]struct {
		keyed bool
		want  int64
	}{"without a key": {false, 2}, "with an idempotency key": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			var counter atomic.Int64
			done := map[string]bool{} // protected by the guard, as a table in the guarded transaction would be
			svc := &service{}
			svc.put = func(ctx context.Context, _ string) error {
				claim, _ := fencing.ClaimFromContext(ctx)
				for _, key := range metadata.ValueFromIncomingContext(ctx, "idempotency-key") {
					key = fmt.Sprint(claim, key)
					if done[key] {
						return nil
					}
					done[key] = true
				}
				if counter.Add(1) == 1 {
					svc.cut() // before the reply
				}
				return nil
			}
			ctx := holding("lock/a", 5)
			if c.keyed {
				ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", "order 1")
			}
			guard := grpcfence.NewGuard(memfence.New(memfence.Options{}), resourceOf, grpcfence.Options{})
			if err := put(ctx, repeating(t, svc, guard), "a"); err != nil {
				t.Error(err)
			}
			if n := counter.Load(); n != c.want {
				t.Errorf("one call made the counter %d, want %d", n, c.want)
			}
		})
	}
}

// repeating returns a connection that repeats UNAVAILABLE up to four times.
func repeating(t *testing.T, svc *service, g *grpcfence.Server) *grpc.ClientConn {
	t.Helper()
	const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.001s",
		"maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`
	return start(t, svc, g)(grpc.WithChainUnaryInterceptor(grpcfence.Client{}.Unary()),
		grpc.WithDefaultServiceConfig(retries))
}

func TestRefusalIsRecordedOnceWithThePeersAddress(t *testing.T) {
	j := &journal{}
	g := grpcfence.NewGuard(memfence.New(memfence.Options{}), resourceOf,
		grpcfence.Options{Auditor: j})
	conn, _ := serve(t, &service{}, g, grpcfence.Client{})
	for how, call := range calls {
		if err := call(holding("lock/a", 9), conn); err != nil {
			t.Fatal(err)
		}
		if err := call(holding("lock/a", 5), conn); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: %v", how, err)
		}
		if got := j.Take(); len(got) != 1 || got[0].Holder == "" || !strings.Contains(got[0].Err.Error(), "token 5") {
			t.Errorf("%s: recorded %+v", how, got)
		}
	}
}

// A guard with more to say than its mark, such as sqlfence.ErrExpired, is heard by the client.
func TestMessageIsWhatTheRefusalSays(t *testing.T) {
	below := &fencing.MarkError{
		Resource: "r", Claim: fencing.Claim{Name: "job", Token: 5}, Mark: 9,
		Err: errors.New("marks up to 9 have expired: release and acquire again"),
	}
	sent := grpcfence.ToStatus(fmt.Errorf("append: %w", below))
	err := grpcfence.FromError(sent)
	if !errors.Is(err, fencing.ErrStale) || status.Convert(sent).Message() != below.Error() ||
		!strings.Contains(err.Error(), "release and acquire again") || strings.Contains(err.Error(), "BumpEpoch") {
		t.Errorf("the client has %v", err)
	}
}

// Other packages add details, too.
func TestStatusOfOthersIsNoRefusal(t *testing.T) {
	for _, details := range [][]protoadapt.MessageV1{
		nil,
		{&errdetails.BadRequest{}},
		{&errdetails.ErrorInfo{Reason: grpcfence.ReasonStale, Domain: "example.com"}, &errdetails.BadRequest{}},
	} {
		s, err := status.New(codes.FailedPrecondition, "no").WithDetails(details...)
		if err != nil {
			t.Fatal(err)
		}
		theirs := s.Err()
		if got := grpcfence.FromError(theirs); got != theirs {
			t.Errorf("%v became %v", theirs, got)
		}
	}
}

func TestReasonStandsForOneError(t *testing.T) {
	targets := []error{
		fencing.ErrStale, fencing.ErrOtherName, holdfast.ErrNoToken, fencing.ErrBadClaim, fencing.ErrNotDone,
		holdfast.ErrOutcomeUnknown,
	}
	for reason, want := range map[string]error{
		grpcfence.ReasonStale: fencing.ErrStale, grpcfence.ReasonOtherName: fencing.ErrOtherName,
		grpcfence.ReasonMissing: holdfast.ErrNoToken, grpcfence.ReasonMalformed: fencing.ErrBadClaim,
		grpcfence.ReasonStore: fencing.ErrNotDone, grpcfence.ReasonResource: fencing.ErrNotDone,
		grpcfence.ReasonUnknown: holdfast.ErrOutcomeUnknown, "of a later version": nil,
	} {
		for _, target := range targets {
			if is := (&grpcfence.Error{Reason: reason}).Is(target); is != (target == want) {
				t.Errorf("%s is %v: %v", reason, target, is)
			}
		}
	}
}
