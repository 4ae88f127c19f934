// Package httpfence carries fencing tokens over HTTP: a client half that sends
// the holder's name and token with a request, and a server half that refuses
// those that are stale.
//
//	client := &http.Client{Transport: &httpfence.Transport{}}
//	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		req, err := http.NewRequestWithContext(ctx, "PUT", url, body) // ctx carries lk
//		...
//		resp, err := client.Do(req)
//		...
//		return httpfence.CheckResponse(resp) // fencing.ErrStale: somebody else holds the lock
//	})
//
//	mux.Handle("POST /accounts/{id}/deposits", httpfence.Handler(deposit, store, func(r *http.Request) (resource, name string, err error) {
//		id := r.PathValue("id")
//		return "account/" + id, "accounts/" + id, nil
//	}))
//
// # What travels
//
//	Fencing-Name: accounts/42      the lock's name, escaped by fencing.EscapeName
//	Fencing-Token: 1731            decimal, from 1 to 2⁶³-1
//
// Each exactly once. Tokens of different names cannot be compared, so the server
// says which name it expects for a resource, and refuses any other.
//
// # Three middlewares
//
//   - [Handler] is the guard: the whole of the wrapped handler is the effect, and
//     a [fencing.Store] sees to it that no stale one runs. The body is read
//     before, and the answer sent after that. Let the request say what to change
//     and not what the result is: what a client has read may be changed, by a
//     holder that was paused, before the client's write arrives.
//   - [Filter] is a filter: a request that passed it can be overtaken before the
//     handler's effect. It is for handlers whose own store makes the comparison
//     that counts, or for where that is accepted.
//   - [Require] compares no token: it is for handlers that have the real
//     guarantee from elsewhere (fencing/sqlfence, [fencing.EtcdMarks].Commit, a
//     conditional write), and take the claim from [fencing.ClaimFromContext].
//
// What a request gets that is refused or of unknown outcome, with a body of type
// application/problem+json (RFC 9457) that [CheckResponse] reads. The table of
// [fencing.VerdictOf] decides:
//
//	412 Precondition Failed     stale, or the token of another lock: a condition
//	                            given in the header fields is false
//	428 Precondition Required   neither field was there
//	400 Bad Request             fields that are not one name and one token
//	413, 400                    the body is too long, or did not arrive in full
//	503 Service Unavailable     the store cannot tell; nothing was done
//	500 Internal Server Error   the function that names the resource failed, with
//	                            nothing done; or the outcome is unknown
//
// None of them is one that most clients repeat by themselves, 503 apart. One that
// repeats every 5xx may do the work twice when the outcome is unknown. 409 was
// not taken because for many it means "resolve the conflict and try again", and
// a stale holder must stop.
//
// # What is not guaranteed
//
//   - A claim is no credential: authenticate. Whoever can send a large token can
//     shut out the others.
//   - The guard ends when the handler returns. What it leaves running, and what
//     is written to a connection that was hijacked, is not guarded.
//   - A proxy that strips the fields turns a stale request into one without a
//     claim. That is refused, unless Options.AllowMissing is set.
package httpfence
