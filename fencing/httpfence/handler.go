package httpfence

import (
	"context"
	"errors"
	"fmt"
	"net/http"

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

	// Auditor is told of refusals, with the request's RemoteAddr as the holder.
	// Default fencing.LogAuditor(nil), which logs them as warnings.
	Auditor fencing.Auditor
}

// Handler is the guard: h runs as the effect of store's Do, so no request with a
// stale token gets to h, and while one is in h no other for the same resource
// is, as far as that is the store's promise.
//
// h's context carries the claim, and what the store has put in it. If the store
// fails after h has run (a transaction that does not commit), the connection is
// broken with [http.ErrAbortHandler], lest the client believe what h has
// answered; for such stores [Require], with the transaction within h, gives the
// better answer.
//
// Handler panics if h, store or resourceOf is nil, or if there is more than one
// Options.
func Handler(h http.Handler, store fencing.Store, resourceOf ResourceOf, opts ...Options) http.Handler {
	if store == nil {
		panic("httpfence: nil store")
	}
	return newGuard(h, resourceOf, opts, func(g *guard, w http.ResponseWriter, r *http.Request, resource string, c fencing.Claim) error {
		ran := false
		err := store.Do(fencing.NewClaimContext(r.Context(), c), resource, c, func(ctx context.Context) error {
			ran = true
			g.next.ServeHTTP(w, r.WithContext(ctx))
			return nil
		})
		switch {
		case ran && err != nil:
			panic(http.ErrAbortHandler)
		case !ran && err == nil:
			return errNotRun
		}
		return err
	})
}

var errNotRun = errors.New("httpfence: the store returned nil without running the effect")

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
	return newGuard(h, resourceOf, opts, func(g *guard, w http.ResponseWriter, r *http.Request, resource string, c fencing.Claim) error {
		if err := filter.Admit(r.Context(), resource, c); err != nil {
			return err
		}
		g.serve(w, r, c)
		return nil
	})
}

// Require refuses requests without a usable claim of the expected name, and
// compares no token. h finds the claim in its context and must have it compared
// where it writes; it answers what that refuses with [Error].
//
// It panics like Handler.
func Require(h http.Handler, resourceOf ResourceOf, opts ...Options) http.Handler {
	return newGuard(h, resourceOf, opts, func(g *guard, w http.ResponseWriter, r *http.Request, _ string, c fencing.Claim) error {
		g.serve(w, r, c)
		return nil
	})
}

// guard is what the three have in common: which claims come as far as admit.
type guard struct {
	next       http.Handler
	resourceOf ResourceOf
	opts       Options
	admit      func(g *guard, w http.ResponseWriter, r *http.Request, resource string, c fencing.Claim) error
}

func newGuard(h http.Handler, resourceOf ResourceOf, opts []Options,
	admit func(*guard, http.ResponseWriter, *http.Request, string, fencing.Claim) error) http.Handler {
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
	return g
}

func (g *guard) serve(w http.ResponseWriter, r *http.Request, c fencing.Claim) {
	g.next.ServeHTTP(w, r.WithContext(fencing.NewClaimContext(r.Context(), c)))
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The server has made the keys canonical, so these are all there are.
	c, present, err := fencing.ParseClaim(r.Header[HeaderName], r.Header[HeaderToken])
	if !present && g.opts.AllowMissing {
		g.next.ServeHTTP(w, r)
		return
	}
	if !present {
		err = errMissing
	}
	var resource, name string
	if err == nil {
		if resource, name, err = g.resourceOf(r); err != nil || resource == "" || name == "" {
			err = &resourceError{err}
		} else if err = c.CheckName(resource, name); err == nil {
			err = g.admit(g, w, r, resource, c)
		}
	}
	if err != nil {
		fencing.AuditRefusal(r.Context(), g.opts.Auditor, resource, c, r.RemoteAddr, err)
		Error(w, r, err)
	}
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
