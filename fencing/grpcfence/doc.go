// Package grpcfence carries fencing tokens over gRPC. Client interceptors send the name and token of a
// lock with each call, server interceptors refuse stale ones. It is package httpfence with metadata in
// place of header fields.
//
//	conn, err := grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(grpcfence.Client{}.Unary()),
//		grpc.WithChainStreamInterceptor(grpcfence.Client{}.Stream()))
//
//	resourceOf := func(ctx context.Context, method string, req any) (resource, name string, err error) {
//		id := req.(*pb.PutAccountRequest).Id
//		return "account/" + id, "accounts/" + id, nil
//	}
//	guard := grpcfence.NewGuard(store, resourceOf, grpcfence.Options{})
//	srv := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(guard.Unary()),
//		grpc.ChainStreamInterceptor(guard.Stream()))
//
// The metadata are fencing-name, escaped as in package httpfence, and fencing-token, in decimal, each
// exactly once.
//
// [NewGuard] is the guard, [NewFilter] refuses stale calls early, and [NewRequire] compares no token;
// the handler must, where it writes. A stream is one call: NewGuard holds the resource until it ends,
// so set a deadline on streams, and keepalive on the server. NewFilter admits each received message
// again. What is not guaranteed is listed in package httpfence.
//
// A refusal, or an unknown outcome, is a status with an errdetails.ErrorInfo of [Domain], which the
// client interceptors turn into an *[Error]. docs/fencing.md lists the status codes.
//
// # Retries
//
// A retryPolicy on UNAVAILABLE may run a handler twice under one token, and equal tokens pass. This
// package says UNAVAILABLE only if nothing was done; gRPC says it also if the connection broke after
// the handler's work. Send an idempotency key with each call, which the handler records with its work,
// or set no policy and repeat what Is fencing.ErrNotDone.
package grpcfence
