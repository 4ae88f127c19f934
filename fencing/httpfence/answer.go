package httpfence

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
)

// answer is what a handler answers, held back until it is known whether that is
// true. It implements http.ResponseWriter and nothing else: a way to the
// connection would be a way around it.
type answer struct {
	to   http.ResponseWriter
	most int // bytes of body

	header  http.Header // the handler's; nil until it asks for it
	frozen  http.Header // as it was when status was set
	status  int         // 0: not yet
	body    []byte
	tooLong bool
}

// errStatus says that the handler has answered with an error, which is sent.
var errStatus = errors.New("httpfence: the handler has answered with an error")

// answerError says that an answer is too long to be held back.
type answerError struct{ most int }

func (e *answerError) Error() string {
	return fmt.Sprintf("httpfence: the handler's answer is longer than the %d bytes of Options.MaxAnswer; "+
		"its work was rolled back if the store is a transaction", e.most)
}

// Header returns the handler's header fields, which begin as those that were set
// further out.
func (a *answer) Header() http.Header {
	if a.header == nil {
		if a.header = a.to.Header().Clone(); a.header == nil {
			a.header = make(http.Header)
		}
	}
	return a.header
}

// WriteHeader sets the status, the first time. It panics for what is none, as
// http.Server does; that has to happen before the commit.
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

// Write keeps b, or fails if the answer gets too long.
func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if len(b) > a.most-len(a.body) {
		a.tooLong = true
		return 0, &answerError{a.most}
	}
	a.body = append(a.body, b...)
	return len(b), nil
}

// failed is why the work must not be committed; nil if it may be.
func (a *answer) failed() error {
	switch {
	case a.tooLong:
		return &answerError{a.most}
	case a.status >= 400:
		return errStatus
	}
	return nil
}

// send sends the answer. Its errors are the client's: it is gone, or the handler
// has promised another length than it wrote.
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
		maps.Copy(a.to.Header(), a.header) // the server takes the trailers from it, and nothing else by now
	}
}
