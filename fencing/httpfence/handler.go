package httpfence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
)

// ResourceOf returns what a request writes to, and the name of the lock that guards it: from the path,
// for example, never from the claim. For an error, or an empty resource or name, the response is 500,
// nothing is done, and the text is not sent.
type ResourceOf func(r *http.Request) (resource, name string, err error)

// Options configure a middleware. The zero value is the default.
type Options struct {
	// AllowMissing lets requests without a claim pass, unguarded, during a migration.
	// Default false: they get 428. Malformed claims are always refused.
	AllowMissing bool

	// MaxBody is how many bytes of the request body [Handler] reads before it asks the store. A longer
	// body gets 413. Default 4 MiB. Negative: nothing is read ahead. Set http.Server.ReadTimeout in any
	// case: it ends slow clients, each of which keeps what it has sent in memory, or, if nothing is
	// read ahead, the resource.
	MaxBody int64

	// MaxAnswer is how many bytes of the response body [Handler] holds back until the
	// commit. A longer response becomes 500. Default 4 MiB. Negative panics.
	MaxAnswer int

	// Auditor receives a record of each refusal, with the request's RemoteAddr as
	// the holder. Default: the default logger, at Warn. Causes that are not the claim's
	// fault, and not sent to the client, go to the default logger in any case.
	Auditor audit.Auditor
}

const (
	defaultMaxBody   = 4 << 20 // as for a gRPC message
	defaultMaxAnswer = 4 << 20
)

// Handler guards h: h runs as the effect of store's Do. Its context carries the claim and what the
// store provides. The request body is read before Do, the response is sent after it, so h cannot
// stream (no http.Flusher or http.Hijacker, no 1xx responses):
//
//   - Below status 400 the store commits. If the commit fails, what [Error] makes of it is sent in
//     place of the response.
//   - From 400 on the effect fails, so that a transaction is rolled back. If h has ended it by itself,
//     an unknown outcome is sent in place of the response, and logged.
//   - If h panics, nothing is committed or sent, and the panic continues.
//
// Do not wrap it in http.TimeoutHandler: see docs/fencing.md. Handler
// panics with a *holdfast.ArgumentError if h, store or resourceOf is nil, or MaxAnswer is negative.
func Handler(h http.Handler, store fencing.Store, resourceOf ResourceOf, o Options) http.Handler {
	mustNotBeNil("store", store == nil)
	m := newMiddleware(h, resourceOf, o)
	m.admit = func(w http.ResponseWriter, r *http.Request, resource string, c fencing.Claim) {
		r, err := readBody(w, r, m.opts.MaxBody)
		if err != nil {
			Error(w, r, err)
			return
		}
		a := &answer{to: w, limit: m.opts.MaxAnswer}
		own, err := fence.Serve(r.Context(), store, resource, c, func(ctx context.Context) error {
			serveCopy(ctx, h, a, r)
			return a.failed()
		})
		if own != nil && own != errStatus { //nolint:errorlint // as the handler returned it, not what was made of it
			err = own
		}
		if err != nil {
			m.refuse(w, r, resource, c, err)
			return
		}
		a.send()
	}
	return m
}

// Filter refuses requests that are stale on arrival. It is not a guard. It panics like Handler.
func Filter(h http.Handler, filter fencing.Filter, resourceOf ResourceOf, o Options) http.Handler {
	mustNotBeNil("filter", filter == nil)
	m := newMiddleware(h, resourceOf, o)
	m.admit = func(w http.ResponseWriter, r *http.Request, resource string, c fencing.Claim) {
		if err := filter.Admit(r.Context(), resource, c); err != nil {
			m.refuse(w, r, resource, c, fencing.NotDone(err)) // h has not run
			return
		}
		m.serve(w, r, c)
	}
	return m
}

// Require refuses requests without a well-formed claim of the expected name. h compares the token,
// with the claim of [fencing.ClaimFromContext], and answers a refusal with [Error]. It panics like
// Handler.
func Require(h http.Handler, resourceOf ResourceOf, o Options) http.Handler {
	m := newMiddleware(h, resourceOf, o)
	m.admit = func(w http.ResponseWriter, r *http.Request, _ string, c fencing.Claim) { m.serve(w, r, c) }
	return m
}

// middleware is what Handler, Filter and Require have in common.
type middleware struct {
	next       http.Handler
	resourceOf ResourceOf
	opts       Options

	// admit answers a request whose claim is well-formed and of the right lock.
	admit func(w http.ResponseWriter, r *http.Request, resource string, c fencing.Claim)
}

func newMiddleware(h http.Handler, resourceOf ResourceOf, o Options) *middleware {
	mustNotBeNil("h", h == nil)
	mustNotBeNil("resourceOf", resourceOf == nil)
	m := &middleware{next: h, resourceOf: resourceOf, opts: o}
	if m.opts.MaxAnswer < 0 {
		panic(&holdfast.ArgumentError{Argument: "httpfence.Options.MaxAnswer", Reason: "is negative"})
	}
	if m.opts.MaxAnswer == 0 {
		m.opts.MaxAnswer = defaultMaxAnswer
	}
	if m.opts.MaxBody == 0 {
		m.opts.MaxBody = defaultMaxBody
	}
	return m
}

func mustNotBeNil(argument string, isNil bool) {
	if isNil {
		panic(&holdfast.ArgumentError{Argument: "httpfence: " + argument, Reason: "is nil"})
	}
}

func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, resource, err := fence.Read(values(r.Header, HeaderName), values(r.Header, HeaderToken),
		func() (resource, name string, err error) { return m.resourceOf(r) })
	switch {
	case errors.Is(err, fence.ErrMissing) && m.opts.AllowMissing:
		m.next.ServeHTTP(w, r)
	case errors.Is(err, fence.ErrMissing):
		m.refuse(w, r, resource, c, errMissing)
	case err != nil:
		m.refuse(w, r, resource, c, err)
	default:
		m.admit(w, r, resource, c)
	}
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, c fencing.Claim) {
	serveCopy(fencing.NewClaimContext(r.Context(), c), m.next, w, r)
}

// serveCopy runs h with a copy of r that has the context. It removes the files of an upload that h has parsed: net/http
// looks for them in its own request only, and they would stay for good.
func serveCopy(ctx context.Context, h http.Handler, w http.ResponseWriter, r *http.Request) {
	with := r.WithContext(ctx)
	defer func() {
		if r.MultipartForm == nil && with.MultipartForm != nil {
			_ = with.MultipartForm.RemoveAll() // net/http drops this error, too
		}
	}()
	h.ServeHTTP(w, with)
}

func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, resource string, c fencing.Claim, err error) {
	fence.Refuse(r.Context(), m.opts.Auditor, resource, c, r.RemoteAddr, err)
	Error(w, r, err)
}

var errMissing = fmt.Errorf("httpfence: request without %s and %s: %w", HeaderName, HeaderToken, holdfast.ErrNoToken)

// values returns all values of a field, whatever its capitalization. http.Server
// makes keys canonical, but a proxy or adaptor that builds the header itself may
// not, and AllowMissing would let a claim pass that was not found.
func values(h http.Header, field string) []string {
	found := h[field]
	for key, more := range h {
		if len(key) == len(field) && key != field && strings.EqualFold(key, field) {
			found = append(found[:len(found):len(found)], more...)
		}
	}
	return found
}
