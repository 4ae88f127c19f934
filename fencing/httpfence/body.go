package httpfence

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// readBody returns a copy of r whose body was read into memory, up to limit bytes.
// The client sets the pace, so this comes before the resource is taken. A negative
// limit leaves the body alone.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) (*http.Request, error) {
	if limit < 0 || r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	if r.ContentLength > limit {
		return r, tooLong(limit)
	}
	var body bytes.Buffer // grows with what arrives: a declared length costs the client nothing
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, limit)); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			return r, tooLong(limit)
		}
		return r, &bodyError{http.StatusBadRequest, "did not arrive in full"}
	}
	with := *r // after the read, because r now has the trailers
	with.Body = io.NopCloser(&body)
	return &with, nil
}

// bodyError says why a request body was refused. Nothing was done.
type bodyError struct {
	status int
	reason string
}

func tooLong(limit int64) error {
	return &bodyError{http.StatusRequestEntityTooLarge,
		fmt.Sprintf("is longer than the %d bytes of Options.MaxBody", limit)}
}

func (e *bodyError) Error() string {
	return "httpfence: the body of the request " + e.reason + "; nothing was done"
}
