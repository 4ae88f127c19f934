package etcderr_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	. "github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/retry"
)

type verdict struct {
	class Class
	again bool
}

var (
	transient    = verdict{Transient, true}
	permanent    = verdict{Permanent, false}
	unauthorized = verdict{Unauthorized, false}
	leaseGone    = verdict{LeaseGone, false}
	unknown      = verdict{Unknown, true}
	unknownStay  = verdict{Unknown, false} // unknown, and will not pass
)

// wants has every error of rpctypes. TestEveryErrorOfRPCTypesIsListed fails when a new release of etcd adds one:
// find out in the server's source whether it can be returned after the request was proposed, and add it here.
var wants = map[string]verdict{
	"ErrGRPCEmptyKey":                permanent,
	"ErrGRPCKeyNotFound":             permanent,
	"ErrGRPCValueProvided":           permanent,
	"ErrGRPCLeaseProvided":           permanent,
	"ErrGRPCTooManyOps":              permanent,
	"ErrGRPCDuplicateKey":            permanent,
	"ErrGRPCInvalidClientAPIVersion": permanent,
	"ErrGRPCInvalidSortOption":       permanent,
	"ErrGRPCCompacted":               permanent,
	"ErrGRPCFutureRev":               permanent,
	"ErrGRPCNoSpace":                 unknownStay, // applied, then answered with it

	"ErrGRPCLeaseNotFound":    leaseGone,
	"ErrGRPCLeaseExist":       permanent,
	"ErrGRPCLeaseTTLTooLarge": permanent,

	"ErrGRPCWatchCanceled": unknown,

	"ErrGRPCMemberExist":            permanent,
	"ErrGRPCPeerURLExist":           permanent,
	"ErrGRPCMemberNotEnoughStarted": permanent,
	"ErrGRPCMemberBadURLs":          permanent,
	"ErrGRPCMemberNotFound":         permanent,
	"ErrGRPCMemberNotLearner":       permanent,
	"ErrGRPCLearnerNotReady":        permanent,
	"ErrGRPCTooManyLearners":        permanent,
	"ErrGRPCClusterIDMismatch":      permanent,
	"ErrGRPCClusterIdMismatch":      permanent,

	"ErrGRPCRequestTooLarge":        permanent, // measured before it is proposed
	"ErrGRPCRequestTooManyRequests": transient, // before it is proposed

	"ErrGRPCRootUserNotExist":     permanent,
	"ErrGRPCRootRoleNotExist":     permanent,
	"ErrGRPCUserAlreadyExist":     permanent,
	"ErrGRPCUserEmpty":            unauthorized,
	"ErrGRPCUserNotFound":         permanent,
	"ErrGRPCRoleAlreadyExist":     permanent,
	"ErrGRPCRoleNotFound":         permanent,
	"ErrGRPCRoleEmpty":            permanent,
	"ErrGRPCAuthFailed":           unauthorized,
	"ErrGRPCPermissionNotGiven":   permanent,
	"ErrGRPCPermissionDenied":     unauthorized,
	"ErrGRPCRoleNotGranted":       permanent,
	"ErrGRPCPermissionNotGranted": permanent,
	"ErrGRPCAuthNotEnabled":       permanent,
	"ErrGRPCInvalidAuthToken":     unauthorized,
	"ErrGRPCInvalidAuthMgmt":      permanent,
	"ErrGRPCAuthOldRevision":      transient, // by all members, before it has an effect

	"ErrGRPCNoLeader":                   unknown, // also ends streams with renewals under way
	"ErrGRPCNotLeader":                  transient,
	"ErrGRPCLeaderChanged":              unknown,
	"ErrGRPCNotCapable":                 transient,
	"ErrGRPCStopped":                    unknown,
	"ErrGRPCTimeout":                    unknown,
	"ErrGRPCTimeoutDueToLeaderFail":     unknown,
	"ErrGRPCTimeoutDueToConnectionLost": unknown,
	"ErrGRPCTimeoutWaitAppliedIndex":    unknown,
	"ErrGRPCUnhealthy":                  unknown,
	"ErrGRPCCorrupt":                    permanent,
	"ErrGRPCNotSupportedForLearner":     transient,
	"ErrGRPCBadLeaderTransferee":        permanent,

	"ErrGRPCWrongDowngradeVersionFormat":   permanent,
	"ErrGRPCInvalidDowngradeTargetVersion": permanent,
	"ErrGRPCClusterVersionUnavailable":     permanent,
	"ErrGRPCDowngradeInProcess":            permanent,
	"ErrGRPCNoInflightDowngrade":           permanent,

	"ErrGRPCCanceled":         unknown,
	"ErrGRPCDeadlineExceeded": unknown,
}

// rpctypesErrors parses the variables ErrGRPC… from the source of the rpctypes that this module is built with, since
// rpctypes has no list of them.
func rpctypesErrors(t *testing.T) map[string]error {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "go.etcd.io/etcd/api/v3/v3rpc/rpctypes").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "error.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]error)
	var aliases [][2]string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "ErrGRPC") {
			return true
		}
		name := spec.Names[0].Name
		switch v := spec.Values[0].(type) {
		case *ast.Ident:
			aliases = append(aliases, [2]string{name, v.Name})
		case *ast.CallExpr: // status.Error(codes.X, "text")
			text, err := strconv.Unquote(v.Args[1].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			byName[name] = status.Error(code(t, v.Args[0].(*ast.SelectorExpr).Sel.Name), text)
		default:
			t.Fatalf("%s is declared in a way this test does not read", name)
		}
		return true
	})
	for _, a := range aliases {
		byName[a[0]] = byName[a[1]]
	}
	return byName
}

func code(t *testing.T, name string) codes.Code {
	t.Helper()
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == name {
			return c
		}
	}
	t.Fatalf("no status code %s", name)
	return 0
}

func check(t *testing.T, err error, want verdict) {
	t.Helper()
	if got := (verdict{Classify(err), Retryable(err)}); got != want {
		t.Errorf("%T %v: %v, retryable %t; want %v, %t", err, err, got.class, got.again, want.class, want.again)
	}
}

func TestEveryErrorOfRPCTypesIsListed(t *testing.T) {
	found := rpctypesErrors(t)
	if len(found) < 60 {
		t.Fatalf("only %d errors found in rpctypes", len(found))
	}
	for name, err := range found {
		want, ok := wants[name]
		if !ok {
			t.Errorf("rpctypes.%s (%v) is new and has no class yet", name, err)
			continue
		}
		t.Run(name, func(t *testing.T) {
			check(t, err, want)                                         // as gRPC returns it
			check(t, rpctypes.Error(err), want)                         // as etcd's client returns it
			check(t, fmt.Errorf("lock %q: %w", "a/b", err), want)       // wrapped
			check(t, errors.Join(errors.New("context"), err), want)     // joined
			check(t, fmt.Errorf("a: %w", rpctypes.Error(err)), want)    // wrapped, the client's
			check(t, status.Error(status.Code(err), err.Error()), want) // as the reason of a canceled watch
			if _, ok := rpctypes.Error(err).(rpctypes.EtcdError); ok {
				// The server sends some errors without their code.
				check(t, status.Error(codes.Unknown, rpctypes.ErrorDesc(err)), want)
				check(t, errors.New(err.Error()), want)
			}
		})
	}
	for name := range wants {
		if found[name] == nil {
			t.Errorf("rpctypes.%s no longer exists", name)
		}
	}
}

func TestStatusCodesOfGRPC(t *testing.T) {
	for c, want := range map[codes.Code]verdict{
		codes.Canceled:           unknown,
		codes.Unknown:            unknown,
		codes.InvalidArgument:    permanent,
		codes.DeadlineExceeded:   unknown,
		codes.NotFound:           permanent,
		codes.AlreadyExists:      permanent,
		codes.PermissionDenied:   unauthorized,
		codes.ResourceExhausted:  unknown,
		codes.FailedPrecondition: permanent,
		codes.Aborted:            unknown,
		codes.OutOfRange:         permanent,
		codes.Unimplemented:      permanent,
		codes.Internal:           unknown,
		codes.Unavailable:        unknown,
		codes.DataLoss:           unknownStay,
		codes.Unauthenticated:    unauthorized,
		codes.Code(99):           unknownStay,
	} {
		t.Run(c.String(), func(t *testing.T) { check(t, status.Error(c, "whatever"), want) })
	}
}

func TestClassHasAName(t *testing.T) {
	for c, want := range map[Class]string{
		OK: "ok", Transient: "transient", Permanent: "permanent", Unauthorized: "unauthorized",
		LeaseGone: "lease gone", Unknown: "unknown", Class(42): "Class(42)",
	} {
		if c.String() != want {
			t.Errorf("%q, want %q", c, want)
		}
	}
}

// A request of unknown outcome may be carried out later, unless etcd has answered.
func TestOnlyAFullStoreIsUnknownAndNotPending(t *testing.T) {
	for name, err := range rpctypesErrors(t) {
		want := Classify(err) == Unknown && name != "ErrGRPCNoSpace"
		for _, err := range []error{
			err, rpctypes.Error(err), fmt.Errorf("wrapped: %w", err), retry.Again(err), retry.Final(err),
		} {
			if Pending(err) != want {
				t.Errorf("%s, %v: pending %v", name, err, !want)
			}
		}
	}
	full, denied := rpctypes.ErrNoSpace, rpctypes.ErrPermissionDenied
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("not recognized"), true},
		{context.DeadlineExceeded, true},
		{holdfast.ErrOutcomeUnknown, true},
		{errors.Join(full, denied), false},
		{errors.Join(denied, full), false},
		{errors.Join(full, context.Canceled), true},
		{errors.Join(context.Canceled, full), true},
		{fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, full), true},
	} {
		if Pending(c.err) != c.want {
			t.Errorf("%v: pending %v", c.err, !c.want)
		}
	}
}

func TestNoLeaderIsTransientIfALeaderWasRequired(t *testing.T) {
	for _, err := range []error{
		rpctypes.ErrNoLeader, rpctypes.ErrGRPCNoLeader, fmt.Errorf("wrapped: %w", rpctypes.ErrNoLeader),
	} {
		if Classify(err) != Unknown || !Pending(err) {
			t.Errorf("%v: class %v, pending %v", err, Classify(err), Pending(err))
		}
		got := retry.LeaderRequired(err)
		if Classify(got) != Transient || Pending(got) || !Retryable(got) || !errors.Is(got, err) ||
			got.Error() != err.Error() {
			t.Errorf("%v where a leader was required: class %v, pending %v, retryable %v",
				err, Classify(got), Pending(got), Retryable(got))
		}
	}
	for name, err := range rpctypesErrors(t) {
		if name != "ErrGRPCNoLeader" && retry.LeaderRequired(err) != err {
			t.Errorf("%s was changed", name)
		}
	}
	joined := errors.Join(rpctypes.ErrNoLeader, rpctypes.ErrStopped)
	if retry.LeaderRequired(nil) != nil || retry.LeaderRequired(joined) != joined {
		t.Error("nil, or what is joined with another error, was changed")
	}
}

// A loss is final, whatever was wrong with the last renewal.
func TestLossIsNotWorthARetry(t *testing.T) {
	for _, why := range []error{nil, context.DeadlineExceeded, rpctypes.ErrTimeout, rpctypes.ErrLeaseNotFound} {
		lost := fmt.Errorf("not sent: %w", &holdfast.LostError{Cause: holdfast.CauseExpired, Err: why})
		if Retryable(lost) || Pending(lost) || Classify(lost) != Permanent {
			t.Errorf("%v: %v, retryable %v, pending %v", why, Classify(lost), Retryable(lost), Pending(lost))
		}
	}
}
