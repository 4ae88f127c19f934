package httpfence

import (
	"fmt"
	"net/http"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

// The header fields, in canonical form.
const (
	HeaderName  = "Fencing-Name"
	HeaderToken = "Fencing-Token"
)

// Transport is a RoundTripper that sends the claim of the innermost holder in the request's context.
// It is safe for concurrent use.
//
// A request, or redirect, is not sent, and errors.Is finds the reason, if there is no holder or token
// ([holdfast.ErrNoToken]), if the holder cannot be used (its Check's error), or if one of the fields is
// set already or the name malformed ([fencing.ErrBadClaim]).
type Transport struct {
	// Base sends the requests. Default http.DefaultTransport.
	Base http.RoundTripper

	// AllowMissing sends requests without a holder in their context unchanged.
	// Default false: they fail. A holder that cannot be used always fails.
	AllowMissing bool
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.base()
	holder, ok := fencing.FromContext(req.Context())
	if !ok && t.AllowMissing {
		return base.RoundTrip(req)
	}
	req, err := attach(req, holder)
	if err != nil {
		return nil, err
	}
	return base.RoundTrip(req)
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// CloseIdleConnections passes http.Client's call of that name on to Base.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// attach returns a copy of req with the claim of holder. On error it closes req's
// body, as a RoundTripper must.
func attach(req *http.Request, holder fencing.Holder) (*http.Request, error) {
	c, err := present(req.Header, holder)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // err is more important
		}
		return nil, fmt.Errorf("httpfence: %s %s not sent: %w", req.Method, req.URL.Redacted(), err)
	}
	clone := *req // a RoundTripper must not change its request
	clone.Header = make(http.Header, len(req.Header)+2)
	for key, values := range req.Header {
		clone.Header[key] = values
	}
	values := []string{names.Escape(c.Name), c.Token.String()} // one allocation for both fields
	clone.Header[HeaderName] = values[0:1:1]
	clone.Header[HeaderToken] = values[1:2:2]
	return &clone, nil
}

func present(h http.Header, holder fencing.Holder) (fencing.Claim, error) {
	for _, field := range []string{HeaderName, HeaderToken} {
		if len(values(h, field)) > 0 {
			return fencing.Claim{}, &fencing.ClaimError{Part: field, Reason: "is set already"}
		}
	}
	return fencing.Present(holder)
}
