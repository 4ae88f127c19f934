// Package httpfence carries fencing tokens over HTTP. The client half sends the name
// and token of a lock with each request, the server half refuses stale ones.
//
//	client := &http.Client{Transport: &httpfence.Transport{}}
//	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		req, err := http.NewRequestWithContext(ctx, "PUT", url, body) // ctx carries lk
//		...
//		resp, err := client.Do(req)
//		...
//		return httpfence.CheckResponse(resp) // fencing.ErrStale: another client may hold the lock
//	})
//
//	target := func(r *http.Request) (resource, name string, err error) {
//		id := r.PathValue("id")
//		return "account/" + id, "accounts/" + id, nil
//	}
//	mux.Handle("POST /accounts/{id}/deposits", httpfence.Handler(deposit, store, target, nil))
//
// # Header fields
//
//	Fencing-Name: accounts/42      the lock's name, as fencing.EscapeName writes it
//	Fencing-Token: 1731            decimal, 1 to 2⁶³-1
//
// Each exactly once. Tokens of different names cannot be compared, so the server
// says which lock guards a resource and refuses every other name.
//
// # Three middlewares
//
//   - [Handler] is the guard. The wrapped handler is the effect, and a
//     [fencing.Store] keeps stale requests out. The request body is read before the
//     effect, the response is sent after the commit. Let requests say what to change
//     ("add 5"), not the result ("set to 12"): what the client has read may be out of
//     date by then.
//   - [Filter] refuses stale requests early. A newer holder can overtake a request
//     between the filter and its effect, so the handler must compare again, or the
//     gap be acceptable.
//   - [Require] compares no token. It is for handlers that guard by other means
//     (sqlfence, [fencing.EtcdMarks].Commit, a conditional write) and take the claim
//     from [fencing.ClaimFromContext].
//
// # Responses
//
// A refusal, or an unknown outcome, has a body of type application/problem+json (RFC
// 9457), which [CheckResponse] turns into an error:
//
//	412 Precondition Failed     fencing.ErrStale or ErrOtherName
//	428 Precondition Required   fencing.ErrNoToken: no claim
//	400 Bad Request             fencing.ErrBadClaim; or an incomplete body
//	413 Content Too Large       the body is longer than Options.MaxBody
//	503 Service Unavailable     fencing.ErrNotDone: nothing was done, may be repeated
//	500 Internal Server Error   fencing.ErrNotDone: the server cannot name the resource; or
//	                            holdfast.ErrOutcomeUnknown: read back first
//
// An error of a store or handler that is none of these is an unknown outcome,
// because it may come after the effect. Clients must not repeat 500. 409 is not
// used, because it invites clients to try again, and a stale holder must stop.
//
// # Not guaranteed
//
//   - Security. A claim is not a credential: authenticate clients, because a large
//     token locks out all others.
//   - Anything about work that outlives the handler, or about a hijacked connection.
//   - Protection from a proxy that strips the header fields, if Options.AllowMissing
//     is set.
package httpfence
