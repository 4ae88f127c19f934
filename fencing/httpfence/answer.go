package httpfence

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
)

// answer holds back a handler's response until the store has committed. It
// implements nothing but http.ResponseWriter, because any other way to the
// connection would go around it.
type answer struct {
	to    http.ResponseWriter
	limit int // bytes of body

	header  http.Header // the handler's; nil until it asks for it
	frozen  http.Header // a copy of header from when status was set
	status  int         // 0 until it is set
	body    []byte
	tooLong bool
}

// errStatus fails the effect of a handler that answered with an error status. The
// response is sent nevertheless.
var errStatus = errors.New("httpfence: the handler answered with an error status")

// answerError says that a response is too long to be held back.
type answerError struct{ limit int }

func (e *answerError) Error() string {
	return fmt.Sprintf("httpfence: the handler's response is longer than the %d bytes of Options.MaxAnswer; "+
		"its work was rolled back if the store is a transaction", e.limit)
}

// Header returns the handler's header, at first a copy of what outer handlers set.
func (a *answer) Header() http.Header {
	if a.header == nil {
		if a.header = a.to.Header().Clone(); a.header == nil {
			a.header = make(http.Header)
		}
	}
	return a.header
}

// WriteHeader sets the status, once. Like http.Server it panics for an invalid one;
// here that happens before the commit.
func (a *answer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("httpfence: invalid WriteHeader code %d", status))
	}
	if a.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	a.status = status
	a.frozen = a.header.Clone()
}

// Write keeps b, or fails if the body would exceed the limit.
func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if len(b) > a.limit-len(a.body) {
		a.tooLong = true
		return 0, &answerError{a.limit}
	}
	a.body = append(a.body, b...)
	return len(b), nil
}

// failed returns why the work must not be committed, nil if it may be.
func (a *answer) failed() error {
	switch {
	case a.tooLong:
		return &answerError{a.limit}
	case a.status >= 400:
		return errStatus
	}
	return nil
}

// send sends the response. Its errors are not reported: the client is gone, or the
// handler declared another length than it wrote.
func (a *answer) send() {
	if a.status == 0 {
		a.frozen = a.header
	}
	if a.frozen != nil {
		h := a.to.Header()
		clear(h)
		maps.Copy(h, a.frozen)
	}
	if a.status != 0 {
		a.to.WriteHeader(a.status)
	}
	if len(a.body) > 0 {
		_, _ = a.to.Write(a.body)
	}
	if a.status != 0 && a.header != nil {
		maps.Copy(a.to.Header(), a.header) // from here on the server takes only trailers
	}
}
