package grpcfence

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/fencing"
)

// The metadata keys.
const (
	KeyName  = "fencing-name"
	KeyToken = "fencing-token"
)

// Client is the client half. The zero value is the default.
//
// A call is refused without being sent, with an error that wraps the reason, if
// its context carries no holder ([fencing.ErrNoToken]), if the holder's Check
// fails (lost, released or suspended), if it has no name ([fencing.ErrNoName]:
// it must be [fencing.Named]), or if the outgoing metadata has one of the keys
// already ([fencing.ErrBadClaim]). The status code of such an error is Unknown,
// which no retry policy repeats.
//
// An error of the server that is a refusal comes back as an *[Error], all others
// as they are.
type Client struct {
	// AllowMissing sends a call whose context carries no holder as it is.
	// Default false: it is refused.
	AllowMissing bool
}

// Unary returns the interceptor for unary calls. The check is made once for a
// call; attempts that gRPC makes by itself carry the same claim.
func (c Client) Unary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, _, err := c.attach(ctx, method)
		if err != nil {
			return err
		}
		return FromError(invoker(ctx, method, req, reply, cc, opts...))
	}
}

// Stream returns the interceptor for streams. The claim goes with the beginning;
// each message sent later is refused if the holder may not be used any more.
// That does not end the stream: its context does.
func (c Client) Stream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, holder, err := c.attach(ctx, method)
		if err != nil {
			return nil, err
		}
		s, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, FromError(err)
		}
		return &clientStream{s, holder, method}, nil
	}
}

type clientStream struct {
	grpc.ClientStream
	holder fencing.Holder // nil: let pass without
	method string
}

func (s *clientStream) SendMsg(m any) error {
	if s.holder != nil {
		if _, err := fencing.Present(s.holder); err != nil {
			return notSent(s.method, err)
		}
	}
	return FromError(s.ClientStream.SendMsg(m)) // io.EOF stays io.EOF
}

func (s *clientStream) RecvMsg(m any) error { return FromError(s.ClientStream.RecvMsg(m)) }

func (s *clientStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	return md, FromError(err)
}

// attach returns ctx with the claim of its holder in the outgoing metadata.
func (c Client) attach(ctx context.Context, method string) (context.Context, fencing.Holder, error) {
	holder, ok := fencing.FromContext(ctx)
	if !ok && c.AllowMissing {
		return ctx, nil, nil
	}
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		for _, key := range []string{KeyName, KeyToken} {
			if len(md[key]) > 0 {
				return nil, nil, notSent(method, &fencing.ClaimError{Part: key, Reason: "is there already: of two, the server would have to choose"})
			}
		}
	}
	if !ok {
		return nil, nil, notSent(method, fencing.ErrNoToken)
	}
	claim, err := fencing.Present(holder)
	if err != nil {
		return nil, nil, notSent(method, err)
	}
	return metadata.AppendToOutgoingContext(ctx, KeyName, fencing.EscapeName(claim.Name), KeyToken, claim.Token.String()), holder, nil
}

func notSent(method string, err error) error {
	return fmt.Errorf("grpcfence: %s not sent: %w", method, err)
}
