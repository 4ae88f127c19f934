package httpfence

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/holdfast-go/holdfast/fencing"
)

// ResourceOf says what a request writes to, and the name of the lock that guards
// that. It decides from what the client cannot choose freely: from the path, say,
// and never from the fields of the claim. An error, or an empty resource or
// name, answers 500 with nothing done; the text is not sent.
type ResourceOf func(r *http.Request) (resource, name string, err error)

// Options of a middleware. The zero value is the default.
type Options struct {
	// AllowMissing lets a request without any claim pass, unguarded and not in
	// turn with others. Default false: it is refused with 428. It is for the
	// time of a migration. A claim that is there and cannot be used is refused
	// either way.
	AllowMissing bool

	// MaxBody is how many bytes of a request's body [Handler] reads before it
	// takes the resource, so that a client that sends slowly keeps nobody
	// waiting. A longer body is refused with 413. Default [DefaultMaxBody].
	// Negative: nothing is read ahead; then bound the time to read a request
	// (http.Server.ReadTimeout), since a stale client that stops in the middle
	// keeps newer holders out for as long as that.
	MaxBody int64

	// MaxAnswer is how many bytes of an answer [Handler] holds back until the
	// store has committed. A write beyond that fails, and so does the request,
	// with 500. Default [DefaultMaxAnswer]. Negative panics.
	MaxAnswer int

	// Auditor is told of refusals, with the request's RemoteAddr as the holder.
	// Default fencing.LogAuditor(nil), which logs them as warnings.
	Auditor fencing.Auditor
}

// What the zero fields of [Options] stand for: 4 MiB, which is also how long a
// message of gRPC may be by default.
const (
	DefaultMaxBody   = 4 << 20
	DefaultMaxAnswer = 4 << 20
)

// Handler is the guard: h runs as the effect of store's Do, so no request with a
// stale token gets to h, and while one is in h no other for the same resource
// is, as far as that is the store's promise.
//
// h's context carries the claim, and what the store has put in it. The body is
// read before the store is asked, and the answer sent when the store is done:
//
//   - A status below 400 lets the store commit. If it does, h's answer is sent;
//     if not, what [Error] says about the store's error is sent in its place.
//   - A status of 400 or more is an error of the effect, so that a store which
//     is a transaction rolls back. Then h's answer is sent.
//   - After a panic in h nothing is committed or sent, and the panic goes on.
//
// So h cannot stream: w is no http.Flusher and no http.Hijacker, and an
// http.ResponseController has http.ErrNotSupported for h. Informational answers
// (1xx) are dropped. Trailers are sent.
//
// Handler panics if h, store or resourceOf is nil, if there is more than one
// Options, or if MaxAnswer is negative.
func Handler(h http.Handler, store fencing.Store, resourceOf ResourceOf, opts ...Options) http.Handler {
	if store == nil {
		panic("httpfence: nil store")
	}
	return newGuard(h, resourceOf, opts, func(g *guard, w http.ResponseWriter, r *http.Request, resource string, c fencing.Claim) {
		r, err := readBody(w, r, g.opts.MaxBody)
		if err != nil {
			Error(w, r, err)
			return
		}
		a := &answer{to: w, most: g.opts.MaxAnswer}
		err = fencing.Serve(r.Context(), store, resource, c, func(ctx context.Context) error {
			g.next.ServeHTTP(a, r.WithContext(ctx))
			return a.failed()
		})
		if err != nil && err != errStatus {
			g.refuse(w, r, resource, c, err)
			return
		}
		a.send()
	})
}

// Filter turns away requests whose token is stale when they arrive. It is not a
// guard: between its answer and the effect of h the process can be paused, and a
// newer holder overtake. Where the effect must not happen then, h makes the
// comparison that counts itself, with the claim in its context
// ([fencing.ClaimFromContext]), or the store is one for [Handler].
//
// It panics like Handler.
func Filter(h http.Handler, filter fencing.Filter, resourceOf ResourceOf, opts ...Options) http.Handler {
	if filter == nil {
		panic("httpfence: nil filter")
	}
	return newGuard(h, resourceOf, opts, func(g *guard, w http.ResponseWriter, r *http.Request, resource string, c fencing.Claim) {
		if err := filter.Admit(r.Context(), resource, c); err != nil {
			g.refuse(w, r, resource, c, fencing.NotDone(err)) // h has not run
			return
		}
		g.serve(w, r, c)
	})
}

// Require refuses requests without a usable claim of the expected name, and
// compares no token. h finds the claim in its context and must have it compared
// where it writes; it answers what that refuses with [Error].
//
// It panics like Handler.
func Require(h http.Handler, resourceOf ResourceOf, opts ...Options) http.Handler {
	return newGuard(h, resourceOf, opts, func(g *guard, w http.ResponseWriter, r *http.Request, _ string, c fencing.Claim) {
		g.serve(w, r, c)
	})
}

// guard is what the three have in common: which claims come as far as admit,
// which answers.
type guard struct {
	next       http.Handler
	resourceOf ResourceOf
	opts       Options
	admit      func(g *guard, w http.ResponseWriter, r *http.Request, resource string, c fencing.Claim)
}

func newGuard(h http.Handler, resourceOf ResourceOf, opts []Options,
	admit func(*guard, http.ResponseWriter, *http.Request, string, fencing.Claim)) http.Handler {
	if h == nil || resourceOf == nil {
		panic("httpfence: nil handler or nil ResourceOf")
	}
	g := &guard{next: h, resourceOf: resourceOf, admit: admit}
	switch len(opts) {
	case 0:
	case 1:
		g.opts = opts[0]
	default:
		panic("httpfence: more than one Options")
	}
	if g.opts.MaxAnswer < 0 {
		panic("httpfence: negative Options.MaxAnswer")
	}
	if g.opts.MaxAnswer == 0 {
		g.opts.MaxAnswer = DefaultMaxAnswer
	}
	if g.opts.MaxBody == 0 {
		g.opts.MaxBody = DefaultMaxBody
	}
	return g
}

func (g *guard) serve(w http.ResponseWriter, r *http.Request, c fencing.Claim) {
	g.next.ServeHTTP(w, r.WithContext(fencing.NewClaimContext(r.Context(), c)))
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, present, err := fencing.ParseClaim(values(r.Header, HeaderName), values(r.Header, HeaderToken))
	if !present && g.opts.AllowMissing {
		g.next.ServeHTTP(w, r)
		return
	}
	if !present {
		err = errMissing
	}
	if err != nil {
		g.refuse(w, r, "", c, err)
		return
	}
	resource, name, err := g.resourceOf(r)
	if err != nil || resource == "" || name == "" {
		err = &resourceError{err}
	} else {
		err = c.CheckName(resource, name)
	}
	if err != nil {
		g.refuse(w, r, resource, c, err)
		return
	}
	g.admit(g, w, r, resource, c)
}

func (g *guard) refuse(w http.ResponseWriter, r *http.Request, resource string, c fencing.Claim, err error) {
	fencing.AuditRefusal(r.Context(), g.opts.Auditor, resource, c, r.RemoteAddr, err)
	Error(w, r, err)
}

// values are all values of a field. http.Server makes keys canonical; a proxy or
// adaptor that builds the header itself may not, and a claim that is not found
// would be let pass by AllowMissing.
func values(h http.Header, field string) []string {
	found := h[field]
	for key, more := range h {
		if len(key) == len(field) && key != field && strings.EqualFold(key, field) {
			found = append(found[:len(found):len(found)], more...)
		}
	}
	return found
}

var errMissing = fmt.Errorf("httpfence: neither %s nor %s is there: %w", HeaderName, HeaderToken, fencing.ErrNoToken)

// resourceError is a failure of the server's own function. It hides what that
// said, so that nothing in there is taken for a verdict on the claim.
type resourceError struct{ err error }

func (e *resourceError) Error() string {
	if e.err == nil {
		return "httpfence: the server has no resource or no name for this request"
	}
	return "httpfence: the server cannot tell what this request writes to: " + e.err.Error()
}
