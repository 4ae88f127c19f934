// Package httpfence carries fencing tokens over HTTP. The client half sends the name and token of a
// lock with each request, the server half refuses stale ones.
//
//	client := &http.Client{Transport: &httpfence.Transport{}}
//	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		req, err := http.NewRequestWithContext(ctx, "PUT", url, body) // ctx carries lk
//		resp, err := client.Do(req)
//		...
//		return httpfence.CheckResponse(resp) // fencing.ErrStale: another client may hold the lock
//	})
//
//	target := func(r *http.Request) (resource, name string, err error) {
//		id := r.PathValue("id")
//		return "account/" + id, "accounts/" + id, nil
//	}
//	mux.Handle("POST /accounts/{id}/deposits", httpfence.Handler(deposit, store, target, httpfence.Options{}))
//
// The header fields, each exactly once:
//
//	Fencing-Name: accounts/42      the lock's name; but for letters, digits and -._~/:@+ a byte is %XX
//	Fencing-Token: 1731            decimal, 1 to 2⁶³-1
//
// # Three middlewares
//
//   - [Handler] is the guard: the wrapped handler is the effect of a [fencing.Store]. Let requests say
//     what to change ("add 5"), not the result ("set to 12").
//   - [Filter] refuses stale requests early, but a newer holder can overtake a request between the
//     filter and its effect.
//   - [Require] compares no token, for handlers that do so where they write (sqlfence,
//     etcdfence.Marks.Commit).
//
// # Responses
//
// A refusal, or an unknown outcome, has a body of type application/problem+json (RFC 9457), which
// [CheckResponse] turns into a *[ResponseError]. docs/fencing.md lists the statuses. 503 means that
// nothing was done, and may be repeated; 500 must not.
//
// # Not guaranteed
//
//   - Security. A claim is not a credential: authenticate clients.
//   - Anything about work that outlives the handler.
//   - Protection from a proxy that strips the fields, if Options.AllowMissing is set.
package httpfence
