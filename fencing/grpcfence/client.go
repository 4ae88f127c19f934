package grpcfence

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

// The metadata keys.
const (
	KeyName  = "fencing-name"
	KeyToken = "fencing-token"
)

// Client is the client half. The zero value is the default.
//
// A call is not sent, and errors.Is finds the reason, if there is no holder or token
// ([holdfast.ErrNoToken]), if the holder cannot be used (its Check's error), or if one of the keys is
// set already or the name malformed ([fencing.ErrBadClaim]). Such an error has the code Unknown. A
// refusal by the server comes back as an *[Error].
type Client struct {
	// AllowMissing sends calls without a holder in their context unchanged. Default
	// false: they fail.
	AllowMissing bool
}

// Unary returns the interceptor for unary calls. The holder is checked once per
// call; gRPC's own retries send the same claim.
func (c Client) Unary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, _, err := c.attach(ctx, method)
		if err != nil {
			return err
		}
		return FromError(invoker(ctx, method, req, reply, cc, opts...))
	}
}

// Stream returns the interceptor for streams. The claim is sent when the stream is opened;
// SendMsg checks the holder again, and its error ends the stream.
func (c Client) Stream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, holder, err := c.attach(ctx, method)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		s, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil {
			cancel()
			return nil, FromError(err)
		}
		return &clientStream{s, holder, method, desc.ServerStreams, cancel}, nil
	}
}

type clientStream struct {
	grpc.ClientStream
	holder fencing.Holder // nil if AllowMissing let the call pass
	method string
	many   bool               // RecvMsg returns any number of messages
	cancel context.CancelFunc // called when the stream has ended; its Context would tell, but forbids gRPC's retries
}

func (s *clientStream) SendMsg(m any) error {
	if s.holder != nil {
		if _, err := fencing.Present(s.holder); err != nil {
			// The caller gives the stream up, as gRPC allows after an error of SendMsg. Without this the
			// server's handler would wait for the next message, and keep the resource.
			s.cancel()
			return notSent(s.method, err)
		}
	}
	err := s.ClientStream.SendMsg(m)
	if err != nil && err != io.EOF { //nolint:errorlint // gRPC's own, which sends the caller to RecvMsg
		s.cancel()
	}
	return FromError(err) // leaves io.EOF unchanged
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil || !s.many {
		s.cancel()
	}
	return FromError(err)
}

func (s *clientStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err != nil {
		s.cancel()
	}
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
				return nil, nil, notSent(method, &fencing.ClaimError{Part: key, Reason: "is set already"})
			}
		}
	}
	claim, err := fencing.Present(holder)
	if err != nil {
		return nil, nil, notSent(method, err)
	}
	ctx = metadata.AppendToOutgoingContext(ctx,
		KeyName, names.Escape(claim.Name), KeyToken, claim.Token.String())
	return ctx, holder, nil
}

func notSent(method string, err error) error {
	return fmt.Errorf("grpcfence: %s not sent: %w", method, err)
}
