package httpfence

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// readBody reads the body of r, at most most bytes of it, and returns r with what
// was read for a body. What it reads comes at the client's pace, so no resource
// may be held meanwhile. A negative most leaves the body as it is.
func readBody(w http.ResponseWriter, r *http.Request, most int64) (*http.Request, error) {
	if most < 0 || r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	if r.ContentLength > most {
		return r, tooLong(most)
	}
	var read bytes.Buffer
	if r.ContentLength > 0 {
		read.Grow(int(r.ContentLength) + bytes.MinRead) // what ReadFrom wants, so that it does not grow it again
	}
	if _, err := read.ReadFrom(http.MaxBytesReader(w, r.Body, most)); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			return r, tooLong(most)
		}
		return r, &bodyError{http.StatusBadRequest, "did not arrive in full"}
	}
	with := *r // the trailers are in r by now
	with.Body = io.NopCloser(&read)
	return &with, nil
}

// bodyError says that the body of a request cannot be used, and that nothing was
// done.
type bodyError struct {
	status int
	reason string
}

func tooLong(most int64) error {
	return &bodyError{http.StatusRequestEntityTooLarge, fmt.Sprintf("is longer than the %d bytes of Options.MaxBody", most)}
}

func (e *bodyError) Error() string {
	return "httpfence: the body of the request " + e.reason + "; nothing was done"
}
