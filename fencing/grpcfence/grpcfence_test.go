package grpcfence_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
)

// both are the two ways to call.
var both = map[string]func(context.Context, *grpc.ClientConn) error{
	"unary":  func(ctx context.Context, c *grpc.ClientConn) error { return put(ctx, c, "a") },
	"stream": once,
}

func guards(o grpcfence.Options) map[string]*grpcfence.Server {
	return map[string]*grpcfence.Server{
		"guard":   grpcfence.NewGuard(fencing.NewMemoryStore(nil), resourceOf, o),
		"filter":  grpcfence.NewFilter(fencing.NewMemoryStore(nil), resourceOf, o),
		"require": grpcfence.NewRequire(resourceOf, o),
	}
}

func TestClaimArrives(t *testing.T) {
	for kind, g := range guards(grpcfence.Options{}) {
		svc := &service{}
		conn, _ := serve(t, svc, g, grpcfence.Client{})
		for how, call := range both {
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
	for kind, g := range guards(grpcfence.Options{Auditor: j}) {
		if kind == "require" {
			continue // compares nothing
		}
		svc := &service{}
		conn, _ := serve(t, svc, g, grpcfence.Client{})
		for how, call := range both {
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
			if !errors.As(err, &e) || e.Reason != grpcfence.ReasonStale || e.Metadata["mark"] != "10" || e.Metadata["token"] != "8" ||
				e.Metadata["resource"] != "res/a" || e.Metadata["name"] != "lock/a" || !strings.Contains(err.Error(), "BumpEpoch") {
				t.Errorf("%s, %s: %#v", kind, how, err)
			}
			s, ok := status.FromError(err)
			if info, is := s.Details()[0].(*errdetails.ErrorInfo); !ok || !is || info.Domain != grpcfence.Domain {
				t.Errorf("%s, %s: details %v", kind, how, s.Details())
			}
			if got := j.take(); len(got) != 1 || got[0].Event != audit.Refused || got[0].Mark != 10 || got[0].Resource != "res/a" || got[0].Holder == "" {
				t.Errorf("%s, %s: audited %+v", kind, how, got)
			}
			// The other way to call begins anew.
			g = guards(grpcfence.Options{Auditor: j})[kind]
			conn, _ = serve(t, svc, g, grpcfence.Client{})
		}
	}
}

func TestCallWithoutAUsableClaimIsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		md     []string
		code   codes.Code
		is     error
		reason string
	}{
		"no claim":     {nil, codes.InvalidArgument, fencing.ErrNoToken, grpcfence.ReasonMissing},
		"no name":      {[]string{"fencing-token", "7"}, codes.InvalidArgument, fencing.ErrBadClaim, grpcfence.ReasonMalformed},
		"no token":     {[]string{"fencing-name", "lock/a"}, codes.InvalidArgument, fencing.ErrBadClaim, grpcfence.ReasonMalformed},
		"zero":         {[]string{"fencing-name", "lock/a", "fencing-token", "0"}, codes.InvalidArgument, fencing.ErrBadClaim, grpcfence.ReasonMalformed},
		"negative":     {[]string{"fencing-name", "lock/a", "fencing-token", "-7"}, codes.InvalidArgument, fencing.ErrBadClaim, grpcfence.ReasonMalformed},
		"overflow":     {[]string{"fencing-name", "lock/a", "fencing-token", "9223372036854775808"}, codes.InvalidArgument, fencing.ErrBadClaim, grpcfence.ReasonMalformed},
		"garbage":      {[]string{"fencing-name", "lock/a", "fencing-token", "x"}, codes.InvalidArgument, fencing.ErrBadClaim, grpcfence.ReasonMalformed},
		"empty":        {[]string{"fencing-name", "", "fencing-token", ""}, codes.InvalidArgument, fencing.ErrBadClaim, grpcfence.ReasonMalformed},
		"two tokens":   {[]string{"fencing-name", "lock/a", "fencing-token", "7", "fencing-token", "9"}, codes.InvalidArgument, fencing.ErrBadClaim, grpcfence.ReasonMalformed},
		"two names":    {[]string{"fencing-name", "lock/a", "fencing-name", "lock/a", "fencing-token", "7"}, codes.InvalidArgument, fencing.ErrBadClaim, grpcfence.ReasonMalformed},
		"another lock": {[]string{"fencing-name", "lock/b", "fencing-token", "7"}, codes.FailedPrecondition, fencing.ErrOtherName, grpcfence.ReasonOtherName},
	} {
		for _, allow := range []bool{false, true} {
			j := &journal{}
			for kind, g := range guards(grpcfence.Options{AllowMissing: allow, Auditor: j}) {
				svc := &service{}
				_, conn := serve(t, svc, g, grpcfence.Client{})
				for how, call := range both {
					err := call(metadata.AppendToOutgoingContext(t.Context(), c.md...), conn)
					if allow && c.md == nil {
						if err != nil || svc.count() == 0 {
							t.Errorf("%s, %s, %s: explicitly allowed, and %v", kind, how, what, err)
						}
						continue
					}
					refused := grpcfence.FromError(err)
					var e *grpcfence.Error
					if svc.count() != 0 || status.Code(err) != c.code || !errors.As(refused, &e) || e.Reason != c.reason || !errors.Is(refused, c.is) {
						t.Errorf("%s, %s, %s: landed %d, %v", kind, how, what, svc.count(), err)
					}
					if got := j.take(); len(got) != 1 {
						t.Errorf("%s, %s, %s: audited %+v", kind, how, what, got)
					}
				}
			}
		}
	}
}

func TestHolderThatMayNotBeUsedCallsNobody(t *testing.T) {
	svc := &service{}
	conn, _ := serve(t, svc, grpcfence.NewRequire(resourceOf), grpcfence.Client{})
	allow, _ := serve(t, svc, grpcfence.NewRequire(resourceOf, &grpcfence.Options{AllowMissing: true}), grpcfence.Client{AllowMissing: true})
	lost := errors.New("lost")
	gone := &holder{name: "lock/a", token: 7, err: lost}
	for what, c := range map[string]struct {
		ctx  context.Context
		conn *grpc.ClientConn
		want error
	}{
		"lost":                  {fencing.NewContext(t.Context(), gone), conn, lost},
		"lost, missing allowed": {fencing.NewContext(t.Context(), gone), allow, lost},
		"no token":              {holding("lock/a", 0), conn, fencing.ErrNoToken},
		"no name":               {fencing.NewContext(t.Context(), nameless{&holder{name: "lock/a", token: 7}}), conn, fencing.ErrNoName},
		"no holder":             {t.Context(), conn, fencing.ErrNoToken},
		"there already":         {metadata.AppendToOutgoingContext(holding("lock/a", 7), "Fencing-Token", "9"), conn, fencing.ErrBadClaim},
	} {
		for how, call := range both {
			if err := call(c.ctx, c.conn); !errors.Is(err, c.want) || svc.count() != 0 {
				t.Errorf("%s, %s: landed %d, %v", how, what, svc.count(), err)
			}
		}
	}
	for how, call := range both {
		if err := call(t.Context(), allow); err != nil {
			t.Errorf("%s, explicitly allowed: %v", how, err)
		}
	}
}

func TestHolderLostWithinAStreamSendsNoMore(t *testing.T) {
	svc := &service{}
	conn, _ := serve(t, svc, grpcfence.NewRequire(resourceOf), grpcfence.Client{})
	h := &holder{name: "lock/a", token: 7}
	ctx, cancel := context.WithCancel(fencing.NewContext(t.Context(), h))
	defer cancel()
	s, err := open(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := exchange(s); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("lost")
	h.lose(lost)
	if err := exchange(s); !errors.Is(err, lost) || svc.count() != 1 {
		t.Errorf("landed %d, %v", svc.count(), err)
	}
}

// A stream that outlives its holder: the filter looks at each message.
func TestFilterAdmitsEachMessageOfAStream(t *testing.T) {
	svc := &service{}
	conn, _ := serve(t, svc, grpcfence.NewFilter(fencing.NewMemoryStore(nil), resourceOf, &grpcfence.Options{Auditor: &journal{}}), grpcfence.Client{})
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

// transaction is a store that is one: what its effect returns decides.
type transaction struct {
	commit     error
	rolledBack bool
}

func (x *transaction) Do(ctx context.Context, _ string, _ fencing.Claim, effect func(context.Context) error) error {
	if err := effect(ctx); err != nil {
		x.rolledBack = true
		return errors.Join(errors.New("rolled back"), err)
	}
	return x.commit
}

func TestHandlersErrorIsTheEffects(t *testing.T) {
	svc := &service{put: func(context.Context, string) error { return status.Error(codes.NotFound, "no such account") }}
	x := &transaction{}
	conn, _ := serve(t, svc, grpcfence.NewGuard(x, resourceOf), grpcfence.Client{})
	if err := put(holding("lock/a", 5), conn, "a"); status.Code(err) != codes.NotFound || !x.rolledBack {
		t.Errorf("rolled back %v, %v", x.rolledBack, err)
	}
	svc.put, x.commit = nil, errors.New("secret: no commit")
	if err := put(holding("lock/a", 5), conn, "a"); status.Code(err) != codes.Unknown || strings.Contains(err.Error(), "secret") {
		t.Errorf("a commit that failed: %v", err)
	}
}

// cannot is a store that cannot tell.
type cannot struct{ err error }

func (c cannot) Do(context.Context, string, fencing.Claim, func(context.Context) error) error {
	return c.err
}
func (c cannot) Admit(context.Context, string, fencing.Claim) error { return c.err }

func TestStoreThatCannotTellLetsNothingPass(t *testing.T) {
	for what, c := range map[string]struct {
		g    *grpcfence.Server
		code codes.Code
	}{
		"guard":           {grpcfence.NewGuard(cannot{errors.New("secret")}, resourceOf), codes.Unavailable},
		"full":            {grpcfence.NewGuard(cannot{fencing.ErrFull}, resourceOf), codes.Unavailable},
		"filter":          {grpcfence.NewFilter(cannot{errors.New("secret")}, resourceOf), codes.Unavailable},
		"deadline":        {grpcfence.NewFilter(cannot{context.DeadlineExceeded}, resourceOf), codes.DeadlineExceeded},
		"forgets to call": {grpcfence.NewGuard(cannot{nil}, resourceOf), codes.Unavailable},
	} {
		svc := &service{}
		conn, _ := serve(t, svc, c.g, grpcfence.Client{})
		for how, call := range both {
			err := call(holding("lock/a", 5), conn)
			if status.Code(err) != c.code || svc.count() != 0 || errors.Is(err, fencing.ErrStale) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %s: landed %d, %v", what, how, svc.count(), err)
			}
		}
	}
	svc := &service{}
	conn, _ := serve(t, svc, grpcfence.NewRequire(resourceOf), grpcfence.Client{})
	if err := put(holding("lock/a", 5), conn, "unknown"); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") || svc.count() != 0 {
		t.Errorf("unknown resource: %v", err)
	}
}

// Whatever a name is made of, the refusal that quotes it arrives.
func TestRefusalOfAnUnusualNameArrives(t *testing.T) {
	svc := &service{}
	conn, _ := serve(t, svc, grpcfence.NewRequire(resourceOf, &grpcfence.Options{Auditor: &journal{}}), grpcfence.Client{})
	for _, name := range []string{"\xff\xfe", "a\x00b", "lock/é", strings.Repeat("\xff", fencing.MaxName)} {
		err := put(holding(name, 5), conn, "a")
		if !errors.Is(err, fencing.ErrOtherName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestNoStaleCallLandsAmongManyClients(t *testing.T) {
	const clients, rounds = 16, 30
	svc := &service{}
	conn, _ := serve(t, svc, grpcfence.NewGuard(fencing.NewMemoryStore(nil), resourceOf, &grpcfence.Options{Auditor: &journal{}}), grpcfence.Client{})
	var newest, ok, refused atomic.Int64
	newest.Store(1)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for range rounds {
				token := newest.Load()
				if i%4 == 0 {
					token = newest.Add(1)
				} else {
					token = max(1, token-rand.Int64N(3))
				}
				switch err := both[[]string{"unary", "stream"}[i%2]](holding("lock/a", token), conn); {
				case errors.Is(err, fencing.ErrStale):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				default:
					ok.Add(1)
				}
			}
		})
	}
	wg.Wait()
	for i := range svc.landed {
		if i > 0 && svc.landed[i].Token < svc.landed[i-1].Token {
			t.Fatalf("%v landed after %v", svc.landed[i].Token, svc.landed[i-1].Token)
		}
	}
	if int64(svc.count()) != ok.Load() || ok.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d landed, %d clients were told so, %d refused", svc.count(), ok.Load(), refused.Load())
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add("lock/a", "7", "")
	f.Add("lock/a", "0", "7")
	f.Add("", "", "")
	f.Add("lock/%61", "-7", "x")
	handler := func(context.Context, any) (any, error) { return "ran", nil }
	f.Fuzz(func(t *testing.T, name, token, second string) {
		g := grpcfence.NewGuard(fencing.NewMemoryStore(nil), resourceOf, &grpcfence.Options{AllowMissing: true, Auditor: &journal{}})
		md := metadata.MD{"fencing-name": {name}, "fencing-token": {token}}
		if second != "" {
			md["fencing-token"] = append(md["fencing-token"], second)
		}
		resp, err := g.Unary()(metadata.NewIncomingContext(t.Context(), md), nil, &grpc.UnaryServerInfo{FullMethod: "/m"}, handler)
		_, perr := fencing.ParseToken(token)
		valid := perr == nil && second == "" && name == "lock/a"
		if valid != (err == nil) || valid != (resp == "ran") {
			t.Errorf("%q: %v, %v", md, resp, err)
		}
		if !valid && !errors.As(grpcfence.FromError(err), new(*grpcfence.Error)) {
			t.Errorf("%q: %v is not a refusal that says so", md, err)
		}
	})
}

func BenchmarkUnary(b *testing.B) {
	in := grpcfence.NewGuard(fencing.NewMemoryStore(nil), func(context.Context, string, any) (string, string, error) { return "account/42", "accounts/42", nil }).Unary()
	ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs("fencing-name", "accounts/42", "fencing-token", "1731"))
	info := &grpc.UnaryServerInfo{FullMethod: "/m"}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := in(ctx, nil, info, handler); err != nil {
			b.Fatal(err)
		}
	}
}
