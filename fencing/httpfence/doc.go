// Package httpfence carries fencing tokens over HTTP. The client half sends the name and token of a
// lock with each request, the server half refuses stale ones.
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
// Each exactly once. The server says which lock guards a resource, and refuses every other name.
//
// # Three middlewares
//
//   - [Handler] is the guard: the wrapped handler is the effect of a [fencing.Store]. Let requests say
//     what to change ("add 5"), not the result ("set to 12").
//   - [Filter] refuses stale requests early, but a newer holder can overtake a request between the
//     filter and its effect.
//   - [Require] compares no token, for handlers that do so where they write (sqlfence,
//     [fencing.EtcdMarks].Commit).
//
// # Responses
//
// A refusal, or an unknown outcome, has a body of type application/problem+json (RFC 9457), which
// [CheckResponse] turns into an error:
//
//	412 Precondition Failed     fencing.ErrStale or ErrOtherName
//	428 Precondition Required   fencing.ErrNoToken: no claim
//	400 Bad Request             fencing.ErrBadClaim; or an incomplete body
//	413 Content Too Large       the body is longer than Options.MaxBody
//	503 Service Unavailable     fencing.ErrNotDone: nothing was done, may be repeated
//	500 Internal Server Error   fencing.ErrNotDone: the server cannot name the resource; or
//	                            holdfast.ErrOutcomeUnknown: read back first
//
// Any other error of a store is an unknown outcome. Clients must not repeat 500.
//
// # Not guaranteed
//
//   - Security. A claim is not a credential: authenticate clients.
//   - Anything about work that outlives the handler.
//   - Protection from a proxy that strips the fields, if Options.AllowMissing is set.
package httpfence
