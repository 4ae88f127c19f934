package grpcfence

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// ResourceOf says what a call writes to, and the name of the lock that guards
// that. method is the full one, "/package.Service/Method"; req is the request of
// a unary call, and nil for a stream, of which nothing has been received yet. An
// error, or an empty resource or name, answers Internal with nothing done; the
// text is not sent.
type ResourceOf func(ctx context.Context, method string, req any) (resource, name string, err error)

// Options of the server half. The zero value is the default.
type Options struct {
	// AllowMissing lets a call without any claim pass, unguarded and not in turn
	// with others. Default false: it is refused. A claim that is there and
	// cannot be used is refused either way.
	AllowMissing bool

	// Auditor is told of refusals, with the peer's address as the holder.
	// Default fencing.LogAuditor(nil), which logs them as warnings.
	Auditor fencing.Auditor
}

// Server is the server half: what [NewGuard], [NewFilter] and [NewRequire] make.
type Server struct {
	resourceOf ResourceOf
	opts       Options
	store      fencing.Store  // the guard's
	filter     fencing.Filter // the filter's
}

// NewGuard returns the guard: the handler runs as the effect of store's Do, and
// its error is the effect's, so that a store which is a transaction rolls back.
// If the store fails after the handler (a commit without an answer), the status
// is that of [ToStatus], in place of the handler's OK.
//
// The status is what says that the work is committed. The messages of a stream
// go out as the handler sends them, before that: a client must not act on them
// as if they were.
//
// NewGuard panics if store or resourceOf is nil, or if there is more than one
// Options.
func NewGuard(store fencing.Store, resourceOf ResourceOf, opts ...Options) *Server {
	if store == nil {
		panic("grpcfence: nil store")
	}
	s := newServer(resourceOf, opts)
	s.store = store
	return s
}

// NewFilter returns the filter, which is not a guard: between its answer and the
// effect of the handler a newer holder can overtake. It panics like NewGuard.
func NewFilter(filter fencing.Filter, resourceOf ResourceOf, opts ...Options) *Server {
	if filter == nil {
		panic("grpcfence: nil filter")
	}
	s := newServer(resourceOf, opts)
	s.filter = filter
	return s
}

// NewRequire returns what refuses calls without a usable claim of the expected
// name, and compares no token. The handler has it compared where it writes, and
// returns what that refuses as [ToStatus]. It panics like NewGuard.
func NewRequire(resourceOf ResourceOf, opts ...Options) *Server { return newServer(resourceOf, opts) }

func newServer(resourceOf ResourceOf, opts []Options) *Server {
	if resourceOf == nil {
		panic("grpcfence: nil ResourceOf")
	}
	s := &Server{resourceOf: resourceOf}
	switch len(opts) {
	case 0:
	case 1:
		s.opts = opts[0]
	default:
		panic("grpcfence: more than one Options")
	}
	return s
}

// Unary returns the interceptor for unary calls.
func (s *Server) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		err = s.do(ctx, info.FullMethod, req, func(ctx context.Context, _ func(context.Context) error) (err error) {
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
		return s.do(ss.Context(), info.FullMethod, nil, func(ctx context.Context, again func(context.Context) error) error {
			return handler(srv, &serverStream{ss, ctx, again})
		})
	}
}

type serverStream struct {
	grpc.ServerStream
	ctx   context.Context
	again func(context.Context) error // admits a message; nil: the beginning was enough
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || s.again == nil {
		return err
	}
	return s.again(s.ctx)
}

// do runs effect if the call's claim is admitted. What it returns is effect's
// error as it is, or a status.
func (s *Server) do(ctx context.Context, method string, req any, effect func(ctx context.Context, again func(context.Context) error) error) error {
	c, present, err := fencing.ParseClaim(metadata.ValueFromIncomingContext(ctx, KeyName), metadata.ValueFromIncomingContext(ctx, KeyToken))
	if !present && s.opts.AllowMissing {
		return effect(ctx, nil)
	}
	if !present {
		err = errMissing
	}
	if err != nil {
		return s.refuse(ctx, "", c, err)
	}
	resource, name, err := s.resourceOf(ctx, method, req)
	if err != nil || resource == "" || name == "" {
		return s.refuse(ctx, resource, c, &resourceError{err})
	}
	if err := c.CheckName(resource, name); err != nil {
		return s.refuse(ctx, resource, c, err)
	}
	switch {
	case s.filter != nil:
		claimed := fencing.NewClaimContext(ctx, c)
		admit := func(ctx context.Context) error {
			err := s.filter.Admit(ctx, resource, c)
			if err == nil {
				return nil
			}
			if fencing.VerdictOf(err) == fencing.NothingDone { // of this message; there were others before it
				err = fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err)
			}
			return s.refuse(ctx, resource, c, err)
		}
		if err := s.filter.Admit(claimed, resource, c); err != nil {
			return s.refuse(ctx, resource, c, fencing.NotDone(err)) // the handler has not run
		}
		return effect(claimed, admit)
	case s.store == nil:
		return effect(fencing.NewClaimContext(ctx, c), nil)
	}
	var own error // the handler's own status, which is answered as it is
	err = fencing.Serve(ctx, s.store, resource, c, func(ctx context.Context) error {
		own = effect(ctx, nil)
		return own
	})
	if own != nil || err == nil {
		return own
	}
	return s.refuse(ctx, resource, c, err)
}

func (s *Server) refuse(ctx context.Context, resource string, c fencing.Claim, err error) error {
	who := ""
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		who = p.Addr.String()
	}
	fencing.AuditRefusal(ctx, s.opts.Auditor, resource, c, who, err)
	return ToStatus(err)
}

var errMissing = fmt.Errorf("grpcfence: neither %s nor %s is there: %w", KeyName, KeyToken, fencing.ErrNoToken)

// resourceError is a failure of the server's own function. It hides what that
// said, so that nothing in there is taken for a verdict on the claim.
type resourceError struct{ err error }

func (e *resourceError) Error() string {
	if e.err == nil {
		return "grpcfence: the server has no resource or no name for this call"
	}
	return "grpcfence: the server cannot tell what this call writes to: " + e.err.Error()
}
