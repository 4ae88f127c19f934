package grpcfence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/fencetest"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
)

func TestClaimArrives(t *testing.T) {
	for kind, g := range servers(grpcfence.Options{}) {
		svc := &service{}
		conn, _ := serve(t, svc, g, grpcfence.Client{})
		for how, call := range calls {
			before := svc.count()
			if err := call(holding("lock/a", 7), conn); err != nil {
				t.Errorf("%s, %s: %v", kind, how, err)
			}
			if svc.count() != before+1 || svc.landed[before] != (fencing.Claim{Name: "lock/a", Token: 7}) {
				t.Errorf("%s, %s: landed %v", kind, how, svc.landed)
			}
		}
	}
}

func TestStaleCallHasNoEffect(t *testing.T) {
	j := &journal{}
	for kind, g := range servers(grpcfence.Options{Auditor: j}) {
		if kind == "require" {
			continue // compares no tokens
		}
		svc := &service{}
		conn, _ := serve(t, svc, g, grpcfence.Client{})
		for how, call := range calls {
			for _, token := range []int64{9, 9, 10} {
				if err := call(holding("lock/a", token), conn); err != nil {
					t.Errorf("%s, %s, %d: %v", kind, how, token, err)
				}
			}
			before := svc.count()
			err := call(holding("lock/a", 8), conn)
			if svc.count() != before || !errors.Is(err, fencing.ErrStale) || status.Code(err) != codes.FailedPrecondition {
				t.Errorf("%s, %s: landed %v, %v", kind, how, svc.landed[before:], err)
			}
			var e *grpcfence.Error
			want := map[string]string{"resource": "res/a", "name": "lock/a", "token": "8", "mark": "10"}
			if !errors.As(err, &e) || e.Reason != grpcfence.ReasonStale || !maps.Equal(e.Metadata, want) ||
				!strings.Contains(err.Error(), "BumpEpoch") {
				t.Errorf("%s, %s: %#v", kind, how, err)
			}
			s, ok := status.FromError(err)
			if info, is := s.Details()[0].(*errdetails.ErrorInfo); !ok || !is || info.Domain != grpcfence.Domain {
				t.Errorf("%s, %s: details %v", kind, how, s.Details())
			}
			if got := j.Take(); len(got) != 1 || got[0].Event != audit.Refused || got[0].Mark != 10 ||
				got[0].Resource != "res/a" || got[0].Holder == "" {
				t.Errorf("%s, %s: recorded %+v", kind, how, got)
			}
			// A new store for the other kind of call.
			g = servers(grpcfence.Options{Auditor: j})[kind]
			conn, _ = serve(t, svc, g, grpcfence.Client{})
		}
	}
}

func TestCallWithoutAWellFormedClaimIsRefused(t *testing.T) {
	type test struct {
		md     []string
		code   codes.Code
		is     error
		reason string
	}
	malformed := func(md ...string) test {
		return test{md, codes.InvalidArgument, fencing.ErrBadClaim, grpcfence.ReasonMalformed}
	}
	const name, token = "fencing-name", "fencing-token"
	for what, c := range map[string]test{
		"no claim": {nil, codes.InvalidArgument, holdfast.ErrNoToken, grpcfence.ReasonMissing},
		"another lock": {[]string{name, "lock/b", token, "7"}, codes.FailedPrecondition,
			fencing.ErrOtherName, grpcfence.ReasonOtherName},
		"no name":    malformed(token, "7"),
		"no token":   malformed(name, "lock/a"),
		"zero":       malformed(name, "lock/a", token, "0"),
		"negative":   malformed(name, "lock/a", token, "-7"),
		"overflow":   malformed(name, "lock/a", token, "9223372036854775808"),
		"garbage":    malformed(name, "lock/a", token, "x"),
		"empty":      malformed(name, "", token, ""),
		"two tokens": malformed(name, "lock/a", token, "7", token, "9"),
		"two names":  malformed(name, "lock/a", name, "lock/a", token, "7"),
	} {
		for _, allow := range []bool{false, true} {
			j := &journal{}
			for kind, g := range servers(grpcfence.Options{AllowMissing: allow, Auditor: j}) {
				svc := &service{}
				_, conn := serve(t, svc, g, grpcfence.Client{})
				for how, call := range calls {
					err := call(metadata.AppendToOutgoingContext(t.Context(), c.md...), conn)
					if allow && c.md == nil {
						if err != nil || svc.count() == 0 {
							t.Errorf("%s, %s, %s: AllowMissing, and %v", kind, how, what, err)
						}
						continue
					}
					refused := grpcfence.FromError(err)
					var e *grpcfence.Error
					if svc.count() != 0 || status.Code(err) != c.code || !errors.As(refused, &e) || e.Reason != c.reason ||
						!errors.Is(refused, c.is) {
						t.Errorf("%s, %s, %s: landed %d, %v", kind, how, what, svc.count(), err)
					}
					if got := j.Take(); len(got) != 1 {
						t.Errorf("%s, %s, %s: recorded %+v", kind, how, what, got)
					}
				}
			}
		}
	}
}

func TestInvalidArgumentsPanic(t *testing.T) {
	store := memfence.New(memfence.Options{})
	resourceOf := func(context.Context, string, any) (string, string, error) { return "", "", nil }
	for name, build := range map[string]func(){
		"store":      func() { grpcfence.NewGuard(nil, resourceOf, grpcfence.Options{}) },
		"filter":     func() { grpcfence.NewFilter(nil, resourceOf, grpcfence.Options{}) },
		"resourceOf": func() { grpcfence.NewGuard(store, nil, grpcfence.Options{}) },
	} {
		func() {
			defer func() {
				if bad, ok := recover().(*holdfast.ArgumentError); !ok || bad.Argument != "grpcfence: "+name {
					t.Errorf("%s: no panic with an ArgumentError, but %v", name, bad)
				}
			}()
			build()
		}()
	}
}

func TestFilterAdmitsEachMessageOfAStream(t *testing.T) {
	svc := &service{}
	filter := grpcfence.NewFilter(memfence.New(memfence.Options{}), resourceOf,
		grpcfence.Options{Auditor: &journal{}})
	conn, _ := serve(t, svc, filter, grpcfence.Client{})
	ctx, cancel := context.WithCancel(holding("lock/a", 5))
	defer cancel()
	s, err := open(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := exchange(s); err != nil {
		t.Fatal(err)
	}
	if err := put(holding("lock/a", 7), conn, "a"); err != nil {
		t.Fatal(err)
	}
	if err := exchange(s); !errors.Is(err, fencing.ErrStale) || svc.count() != 2 {
		t.Errorf("landed %v, %v", svc.landed, err)
	}
}

func TestHandlersErrorFailsTheEffect(t *testing.T) {
	notFound := status.Error(codes.NotFound, "no such account")
	svc := &service{put: func(context.Context, string) error { return notFound }}
	x := &transaction{}
	conn, _ := serve(t, svc, grpcfence.NewGuard(x, resourceOf, grpcfence.Options{}), grpcfence.Client{})
	if err := put(holding("lock/a", 5), conn, "a"); status.Code(err) != codes.NotFound || !x.rolledBack {
		t.Errorf("rolled back %v, %v", x.rolledBack, err)
	}
	svc.put, x.commit = nil, errors.New("secret: no commit")
	err := put(holding("lock/a", 5), conn, "a")
	if status.Code(err) != codes.Unknown || strings.Contains(err.Error(), "secret") {
		t.Errorf("a commit that failed: %v", err)
	}
}

// brokenStore is a store that never calls the effect.
// The handler has ended the transaction by itself, so its own status is not to be believed.
func TestErrorOfAHandlerThatCommittedByItselfIsAnUnknownOutcome(t *testing.T) {
	silenceLog(t)
	left := fmt.Errorf("the transaction had ended: %w", holdfast.ErrOutcomeUnknown)
	svc := &service{put: func(context.Context, string) error { return status.Error(codes.Aborted, "own words") }}
	conn, _ := serve(t, svc, grpcfence.NewGuard(&transaction{left: left}, resourceOf, grpcfence.Options{}),
		grpcfence.Client{})
	err := put(holding("lock/a", 5), conn, "a")
	if status.Code(err) != codes.Unknown || !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
}

func silenceLog(t *testing.T) {
	old := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	t.Cleanup(func() { slog.SetDefault(old) })
}

type brokenStore struct{ err error }

func (b brokenStore) Do(context.Context, string, fencing.Claim, func(context.Context) error) error {
	return b.err
}
func (b brokenStore) Admit(context.Context, string, fencing.Claim) error { return b.err }

func TestStoreThatFailsLetsNothingPass(t *testing.T) {
	guard := func(err error) *grpcfence.Server {
		return grpcfence.NewGuard(brokenStore{err}, resourceOf, grpcfence.Options{})
	}
	filter := func(err error) *grpcfence.Server {
		return grpcfence.NewFilter(brokenStore{err}, resourceOf, grpcfence.Options{})
	}
	for what, c := range map[string]struct {
		g    *grpcfence.Server
		code codes.Code
	}{
		"guard":               {guard(errors.New("secret")), codes.Unavailable},
		"full":                {guard(fencing.ErrFull), codes.Unavailable},
		"returns without run": {guard(nil), codes.Unavailable},
		"filter":              {filter(errors.New("secret")), codes.Unavailable},
		"deadline":            {filter(context.DeadlineExceeded), codes.DeadlineExceeded},
	} {
		svc := &service{}
		conn, _ := serve(t, svc, c.g, grpcfence.Client{})
		for how, call := range calls {
			err := call(holding("lock/a", 5), conn)
			if status.Code(err) != c.code || svc.count() != 0 || errors.Is(err, fencing.ErrStale) ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %s: landed %d, %v", what, how, svc.count(), err)
			}
		}
	}
}

func TestUnknownResourceIsRefused(t *testing.T) {
	silenceLog(t)
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	svc := &service{}
	conn, _ := serve(t, svc, grpcfence.NewRequire(resourceOf, grpcfence.Options{}), grpcfence.Client{})
	err := put(holding("lock/a", 5), conn, "unknown")
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") || svc.count() != 0 {
		t.Errorf("landed %d, %v", svc.count(), err)
	}
	if !strings.Contains(log.String(), "secret") {
		t.Errorf("logged %q", &log)
	}
}

// protobuf strings must be UTF-8; names need not be.
func TestRefusalQuotesANameThatIsNotUTF8(t *testing.T) {
	svc := &service{}
	g := grpcfence.NewRequire(resourceOf, grpcfence.Options{Auditor: &journal{}})
	conn, _ := serve(t, svc, g, grpcfence.Client{})
	for _, name := range []string{"\xff\xfe", "a\x00b", "lock/é", strings.Repeat("\xff", fencing.MaxName)} {
		err := put(holding(name, 5), conn, "a")
		if !errors.Is(err, fencing.ErrOtherName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestNoStaleCallLandsAmongManyClients(t *testing.T) {
	svc := &service{}
	g := grpcfence.NewGuard(memfence.New(memfence.Options{}), resourceOf,
		grpcfence.Options{Auditor: &journal{}})
	conn, _ := serve(t, svc, g, grpcfence.Client{})
	ok := fencetest.Race(t, 30, func(client int, token int64) error {
		return calls[[]string{"unary", "stream"}[client%2]](holding("lock/a", token), conn)
	})
	for i := range svc.landed {
		if i > 0 && svc.landed[i].Token < svc.landed[i-1].Token {
			t.Fatalf("%v landed after %v", svc.landed[i].Token, svc.landed[i-1].Token)
		}
	}
	if svc.count() != ok {
		t.Errorf("%d landed, %d got OK", svc.count(), ok)
	}
}

func TestGuardIsAGuard(t *testing.T) {
	var mu sync.Mutex // protects stored
	stored := make(map[string]string)
	var betweens sync.Map
	svc := &service{put: func(_ context.Context, x string) error {
		resource, data, _ := strings.Cut(x, "\n")
		if between, ok := betweens.Load(data); ok {
			if err := between.(func() error)(); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		stored[resource] = data
		return nil
	}}
	resourceOf := func(_ context.Context, _ string, req any) (resource, name string, err error) {
		resource, _, _ = strings.Cut(req.(*wrapperspb.StringValue).Value, "\n")
		return resource, fencetest.Name, nil
	}
	var lose atomic.Bool
	lossy := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if err != nil || !lose.CompareAndSwap(true, false) {
			return err
		}
		return status.Error(codes.Unavailable, "the connection broke")
	}
	g := grpcfence.NewGuard(memfence.New(memfence.Options{}), resourceOf,
		grpcfence.Options{Auditor: &journal{}})
	conn := start(t, svc, g)(grpc.WithChainUnaryInterceptor(grpcfence.Client{}.Unary(), lossy))
	fencetest.Test(t, fencetest.Guard{
		Write: func(ctx context.Context, resource string, c fencing.Claim, data string, between func() error) error {
			betweens.Store(data, between)
			return put(fencing.NewContext(ctx, &holder{name: c.Name, token: c.Token}), conn, resource+"\n"+data)
		},
		Read: func(_ context.Context, resource string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return stored[resource], nil
		},
		LoseReply: func() { lose.Store(true) },
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add("lock/a", "7", "")
	f.Add("lock/a", "0", "7")
	f.Add("", "", "")
	f.Add("lock/%61", "-7", "x")
	handler := func(context.Context, any) (any, error) { return "ran", nil }
	f.Fuzz(func(t *testing.T, name, token, second string) {
		g := grpcfence.NewGuard(memfence.New(memfence.Options{}), resourceOf,
			grpcfence.Options{AllowMissing: true, Auditor: &journal{}})
		md := metadata.MD{"fencing-name": {name}, "fencing-token": {token}}
		if second != "" {
			md["fencing-token"] = append(md["fencing-token"], second)
		}
		ctx := metadata.NewIncomingContext(t.Context(), md)
		resp, err := g.Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/m"}, handler)
		_, perr := holdfast.ParseToken(token)
		valid := perr == nil && second == "" && name == "lock/a"
		if valid != (err == nil) || valid != (resp == "ran") {
			t.Errorf("%q: %v, %v", md, resp, err)
		}
		if !valid && !errors.As(grpcfence.FromError(err), new(*grpcfence.Error)) {
			t.Errorf("%q: %v is not a refusal of this package", md, err)
		}
	})
}

func BenchmarkUnary(b *testing.B) {
	target := func(context.Context, string, any) (string, string, error) { return "account/42", "accounts/42", nil }
	in := grpcfence.NewGuard(memfence.New(memfence.Options{}), target, grpcfence.Options{}).Unary()
	md := metadata.Pairs("fencing-name", "accounts/42", "fencing-token", "1731")
	ctx := metadata.NewIncomingContext(b.Context(), md)
	info := &grpc.UnaryServerInfo{FullMethod: "/m"}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := in(ctx, nil, info, handler); err != nil {
			b.Fatal(err)
		}
	}
}
