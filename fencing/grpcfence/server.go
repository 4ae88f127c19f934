package grpcfence

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
)

// ResourceOf returns what a call writes to, and the name of the lock that guards it, never from the
// claim. method is "/package.Service/Method"; req is nil for a stream. For an error, or an empty
// resource or name, the status is Internal, nothing is done, and the text is not sent.
type ResourceOf func(ctx context.Context, method string, req any) (resource, name string, err error)

// Options configure the server half. The zero value is the default.
type Options struct {
	// AllowMissing lets calls without a claim pass, unguarded, during a migration.
	// Default false. Malformed claims are always refused.
	AllowMissing bool

	// Auditor receives a record of each refusal, with the peer's address as the
	// holder. Default: the default logger, at Warn. Causes that are not the claim's fault,
	// and not sent to the client, go to the default logger in any case.
	Auditor audit.Auditor
}

// Server is the server half. [NewGuard], [NewFilter] and [NewRequire] return one.
type Server struct {
	resourceOf ResourceOf
	opts       Options
	store      fencing.Store  // for NewGuard
	filter     fencing.Filter // for NewFilter
}

// NewGuard returns the guard: the handler runs as the effect of store's Do. Its error fails the
// effect, so that a transaction is rolled back. If the commit fails, or the handler has ended the
// transaction by itself, the status is that of [ToStatus].
// A stream's messages are sent before the commit: only the status says that the work is done.
//
// NewGuard panics with a *holdfast.ArgumentError if store or resourceOf
// is nil.
func NewGuard(store fencing.Store, resourceOf ResourceOf, o Options) *Server {
	mustNotBeNil("store", store == nil)
	s := NewRequire(resourceOf, o)
	s.store = store
	return s
}

// NewFilter returns the filter, which is not a guard. It panics like NewGuard.
func NewFilter(filter fencing.Filter, resourceOf ResourceOf, o Options) *Server {
	mustNotBeNil("filter", filter == nil)
	s := NewRequire(resourceOf, o)
	s.filter = filter
	return s
}

// NewRequire returns interceptors that refuse calls without a well-formed claim of the expected name.
// The handler compares the token, with the claim of [fencing.ClaimFromContext], and returns a refusal
// through [ToStatus]. It panics like NewGuard.
func NewRequire(resourceOf ResourceOf, o Options) *Server {
	mustNotBeNil("resourceOf", resourceOf == nil)
	return &Server{resourceOf: resourceOf, opts: o}
}

func mustNotBeNil(argument string, isNil bool) {
	if isNil {
		panic(&holdfast.ArgumentError{Argument: "grpcfence: " + argument, Reason: "is nil"})
	}
}

// Unary returns the interceptor for unary calls.
func (s *Server) Unary() grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (resp any, err error) {
		err = s.do(ctx, info.FullMethod, req, func(ctx context.Context, _ readmit) (err error) {
			resp, err = handler(ctx, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		return resp, nil
	}
}

// Stream returns the interceptor for streams.
func (s *Server) Stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return s.do(ss.Context(), info.FullMethod, nil, func(ctx context.Context, again readmit) error {
			return handler(srv, &serverStream{ss, ctx, again})
		})
	}
}

// readmit admits a further message of a stream. It is nil unless a filter is used.
type readmit func(context.Context) error

type serverStream struct {
	grpc.ServerStream
	ctx   context.Context
	again readmit
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || s.again == nil {
		return err
	}
	return s.again(s.ctx)
}

// do runs effect if the call's claim is admitted. It returns effect's error
// unchanged, or a status.
func (s *Server) do(
	ctx context.Context, method string, req any, effect func(ctx context.Context, again readmit) error,
) error {
	names, tokens := metadata.ValueFromIncomingContext(ctx, KeyName), metadata.ValueFromIncomingContext(ctx, KeyToken)
	c, resource, err := fence.Read(names, tokens,
		func() (resource, name string, err error) { return s.resourceOf(ctx, method, req) })
	switch {
	case errors.Is(err, fence.ErrMissing) && s.opts.AllowMissing:
		return effect(ctx, nil)
	case errors.Is(err, fence.ErrMissing):
		return s.refuse(ctx, resource, c, errMissing)
	case err != nil:
		return s.refuse(ctx, resource, c, err)
	case s.store != nil:
		return s.guarded(ctx, resource, c, effect)
	case s.filter != nil:
		return s.filtered(ctx, resource, c, effect)
	}
	return effect(fencing.NewClaimContext(ctx, c), nil)
}

func (s *Server) guarded(
	ctx context.Context, resource string, c fencing.Claim, effect func(ctx context.Context, again readmit) error,
) error {
	own, err := fence.Serve(ctx, s.store, resource, c, func(ctx context.Context) error { return effect(ctx, nil) })
	if err == nil {
		return own
	}
	return s.refuse(ctx, resource, c, err)
}

func (s *Server) filtered(
	ctx context.Context, resource string, c fencing.Claim, effect func(ctx context.Context, again readmit) error,
) error {
	ctx = fencing.NewClaimContext(ctx, c)
	if err := s.filter.Admit(ctx, resource, c); err != nil {
		return s.refuse(ctx, resource, c, fencing.NotDone(err)) // the handler has not run
	}
	return effect(ctx, func(ctx context.Context) error {
		err := s.filter.Admit(ctx, resource, c)
		if err == nil {
			return nil
		}
		// Nothing was done for this message, but the handler may have acted on
		// earlier ones.
		if fence.VerdictOf(err) == fence.NothingDone {
			err = fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
		}
		return s.refuse(ctx, resource, c, err)
	})
}

func (s *Server) refuse(ctx context.Context, resource string, c fencing.Claim, err error) error {
	client := ""
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		client = p.Addr.String()
	}
	fence.Refuse(ctx, s.opts.Auditor, resource, c, client, err)
	return ToStatus(err)
}

var errMissing = fmt.Errorf("grpcfence: call without %s and %s: %w", KeyName, KeyToken, holdfast.ErrNoToken)
