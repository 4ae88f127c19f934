// Package grpcfence carries fencing tokens over gRPC: interceptors that send the
// holder's name and token with a call, and interceptors that refuse those that
// are stale. It is package httpfence with metadata for headers.
//
//	conn, err := grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(grpcfence.Client{}.Unary()),
//		grpc.WithChainStreamInterceptor(grpcfence.Client{}.Stream()))
//
//	guard := grpcfence.NewGuard(store, func(ctx context.Context, method string, req any) (resource, name string, err error) {
//		id := req.(*pb.PutAccountRequest).Id
//		return "account/" + id, "accounts/" + id, nil
//	})
//	srv := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(guard.Unary()),
//		grpc.ChainStreamInterceptor(guard.Stream()))
//
// # What travels
//
// The metadata fencing-name, escaped by fencing.EscapeName, and fencing-token, in
// decimal; each exactly once.
//
// # Three interceptors
//
// [NewGuard] is the guard: the handler is the effect of a [fencing.Store].
// [NewFilter] is a filter: a call that passed it can be overtaken before the
// handler's effect. [NewRequire] compares no token, for handlers that have the
// real guarantee from elsewhere and take the claim from
// [fencing.ClaimFromContext]. Package httpfence says more about the choice.
//
// A stream is one call. NewGuard holds the resource from its start to its end, so
// give streams a deadline, and keepalive to the server: a paused client's stream
// keeps the next holder waiting. NewFilter admits each message again as it is
// received.
//
// The table of [fencing.VerdictOf] decides the code. A call that is refused, or of
// unknown outcome, gets a status with an errdetails.ErrorInfo of the domain
// [Domain], whose reason is one of the constants here; the client interceptors
// turn it into an *[Error] which errors.Is sees through:
//
//	FailedPrecondition   STALE        fencing.ErrStale: stop
//	FailedPrecondition   OTHER_NAME   fencing.ErrOtherName
//	InvalidArgument      MISSING      fencing.ErrNoToken
//	InvalidArgument      MALFORMED    fencing.ErrBadClaim
//	Unavailable          STORE        fencing.ErrNotDone: nothing was done
//	Internal             RESOURCE     fencing.ErrNotDone: the function that names the resource failed
//	Unknown              OUTCOME_UNKNOWN  holdfast.ErrOutcomeUnknown: read back first
//
// Many clients repeat Unavailable by themselves, so nothing else has that code.
//
// FailedPrecondition and not Aborted, because Aborted invites the client to try
// again, and a stale holder must stop.
//
// # What is not guaranteed
//
// A claim is no credential, and the guard ends when the handler returns; see
// package httpfence.
package grpcfence
