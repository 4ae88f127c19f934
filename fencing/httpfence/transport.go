package httpfence

import (
	"fmt"
	"net/http"

	"github.com/holdfast-go/holdfast/fencing"
)

// The fields, in canonical form.
const (
	HeaderName  = "Fencing-Name"
	HeaderToken = "Fencing-Token"
)

// Transport is a RoundTripper that presents the claim of the holder in the
// request's context, the innermost if there are several. It may be used by any
// number of goroutines; its fields must not be changed meanwhile.
//
// A request is refused without being sent, with an error that wraps the reason,
// if its context carries no holder ([fencing.ErrNoToken]), if the holder's Check
// fails (lost, released or suspended), if the holder has no name
// ([fencing.ErrNoName]: it must be [fencing.Named]), or if the request has one of
// the fields already ([fencing.ErrBadClaim]). http.Client wraps the error in a
// *url.Error, which errors.Is sees through.
//
// The check is made for each attempt that http.Client makes, redirects included.
// Those that http.Transport makes by itself, when an idle connection turns out
// to be dead, carry the same claim.
type Transport struct {
	// Base sends the request. Default http.DefaultTransport.
	Base http.RoundTripper

	// AllowMissing sends a request whose context carries no holder as it is.
	// Default false: it is refused. A holder that may not be used is refused
	// either way.
	AllowMissing bool
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
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

// CloseIdleConnections is for http.Client, which has a method of that name.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	} else if t.Base == nil {
		http.DefaultClient.CloseIdleConnections()
	}
}

// attach returns a copy of req with the claim of holder. It closes the body of
// a request that will not be sent, as a RoundTripper must.
func attach(req *http.Request, holder fencing.Holder) (*http.Request, error) {
	c, err := present(req.Header, holder)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // there is an error to return already
		}
		return nil, fmt.Errorf("httpfence: %s %s not sent: %w", req.Method, req.URL.Redacted(), err)
	}
	// A RoundTripper must not change the request it is given.
	clone := *req
	clone.Header = make(http.Header, len(req.Header)+2)
	for key, values := range req.Header {
		clone.Header[key] = values // nobody changes the values
	}
	values := []string{fencing.EscapeName(c.Name), c.Token.String()}
	clone.Header[HeaderName] = values[0:1:1]
	clone.Header[HeaderToken] = values[1:2:2]
	return &clone, nil
}

func present(h http.Header, holder fencing.Holder) (fencing.Claim, error) {
	for _, field := range []string{HeaderName, HeaderToken} {
		if len(values(h, field)) > 0 {
			return fencing.Claim{}, &fencing.ClaimError{Part: field, Reason: "is there already: of two, the server would have to choose"}
		}
	}
	if holder == nil {
		return fencing.Claim{}, fencing.ErrNoToken
	}
	return fencing.Present(holder)
}
