package httpfence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// The types of the problems. Each is also the address of its explanation.
const (
	TypeStale     = typeBase + "stale"
	TypeOtherName = typeBase + "other-name"
	TypeMissing   = typeBase + "missing"
	TypeMalformed = typeBase + "malformed"
	TypeStore     = typeBase + "store"
	TypeResource  = typeBase + "resource"
	TypeUnknown   = typeBase + "unknown"
	TypeBody      = typeBase + "body"

	typeBase = "https://github.com/holdfast-go/holdfast/blob/main/docs/fencing.md#problem-"
)

// Problem is the body of a refusal, as RFC 9457 has it.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	Resource string        `json:"resource,omitempty"`
	Name     string        `json:"name,omitempty"` // of the lock that was presented
	Want     string        `json:"want,omitempty"` // other-name: the lock that guards the resource
	Token    fencing.Token `json:"token,omitzero"` // as a string; see fencing.Token
	Mark     fencing.Token `json:"mark,omitzero"`  // stale: the larger token that was seen
}

// ProblemOf returns the problem that err is answered with. The table of
// [fencing.VerdictOf] decides the status: 503 with "nothing was done" only if that
// is known. What the server's own store or function said is not in it.
func ProblemOf(err error) Problem {
	var (
		below *fencing.MarkError
		other *fencing.OtherNameError
		body  *bodyError
		long  *answerError
	)
	switch {
	case errors.As(err, new(*resourceError)):
		return Problem{Type: TypeResource, Title: "The server cannot tell what the request writes to", Status: http.StatusInternalServerError}
	case errors.As(err, &body):
		return Problem{Type: TypeBody, Title: "The request's body cannot be used", Status: body.status, Detail: body.Error()}
	}
	switch fencing.VerdictOf(err) {
	case fencing.StaleToken:
		p := Problem{Type: TypeStale, Title: "Fencing token is stale", Status: http.StatusPreconditionFailed, Detail: err.Error()}
		if errors.As(err, &below) { // otherwise another guard's error
			p.Detail, p.Resource, p.Mark = below.Error(), below.Resource, below.Mark
			p.Name, p.Token = below.Claim.Name, below.Claim.Token
		}
		return p
	case fencing.OtherLock:
		p := Problem{Type: TypeOtherName, Title: "Fencing token is of another lock", Status: http.StatusPreconditionFailed, Detail: err.Error()}
		if errors.As(err, &other) {
			p.Detail, p.Resource, p.Name, p.Want = other.Error(), other.Resource, other.Got, other.Want
		}
		return p
	case fencing.BadClaim:
		return Problem{Type: TypeMalformed, Title: "Fencing fields cannot be used", Status: http.StatusBadRequest, Detail: err.Error()}
	case fencing.NoClaim:
		return Problem{Type: TypeMissing, Title: "Fencing token is required", Status: http.StatusPreconditionRequired, Detail: err.Error()}
	case fencing.NothingDone:
		return Problem{Type: TypeStore, Title: "Fencing tokens cannot be compared now", Status: http.StatusServiceUnavailable,
			Detail: "nothing was done; the request may be repeated while its holder holds"}
	}
	p := Problem{Type: TypeUnknown, Title: "The outcome is unknown", Status: http.StatusInternalServerError,
		Detail: "the work may have been done, or may be yet; read back before repeating it"}
	if errors.As(err, &long) {
		p.Detail = long.Error()
	}
	return p
}

// Error answers with the problem of err, a guard's: for handlers behind [Require]
// or [Filter] whose own guard has failed. It must come before anything else is
// written to w. It tells no auditor. A nil err is a mistake, and answered as an
// unknown outcome.
func Error(w http.ResponseWriter, r *http.Request, err error) {
	p := ProblemOf(err)
	body, merr := json.Marshal(p)
	if merr != nil {
		body = []byte("{}") // cannot be: plain fields, and no token that is zero
	}
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that has gone does not want to know
	}
}

// ResponseError is a guard's answer as the client sees it. errors.Is finds
// [fencing.ErrStale], [fencing.ErrOtherName], [fencing.ErrNoToken] (428),
// [fencing.ErrBadClaim], holdfast.ErrOutcomeUnknown (type "unknown") or, for the
// types "store", "resource" and "body", [fencing.ErrNotDone] in it, according to
// its type.
type ResponseError struct{ Problem Problem }

func (e *ResponseError) Error() string {
	if e.Problem.Detail != "" {
		return fmt.Sprintf("httpfence: answered %d: %s: %s", e.Problem.Status, e.Problem.Title, e.Problem.Detail)
	}
	return fmt.Sprintf("httpfence: answered %d: %s", e.Problem.Status, e.Problem.Title)
}

// Is makes errors.Is find the reason.
func (e *ResponseError) Is(target error) bool {
	switch e.Problem.Type {
	case TypeStale:
		return target == fencing.ErrStale
	case TypeOtherName:
		return target == fencing.ErrOtherName
	case TypeMissing:
		return target == fencing.ErrNoToken
	case TypeMalformed:
		return target == fencing.ErrBadClaim
	case TypeStore, TypeResource, TypeBody:
		return target == fencing.ErrNotDone
	case TypeUnknown:
		return target == holdfast.ErrOutcomeUnknown
	}
	return false
}

// maxProblem bounds the body that is read in search of a problem.
const maxProblem = 16 << 10

// CheckResponse returns a *[ResponseError] if resp is a refusal of this package,
// and nil for any other response, other failures among them. It reads the body
// only of what is labelled as a problem; that can be read again from resp
// afterwards. Closing it stays with the caller.
func CheckResponse(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusBadRequest,
		http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable, http.StatusInternalServerError:
	default:
		return nil
	}
	if mt, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || mt != "application/problem+json" {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // an error comes again to who reads on
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	var p Problem
	if json.Unmarshal(body, &p) != nil || !strings.HasPrefix(p.Type, typeBase) {
		return nil
	}
	p.Status = resp.StatusCode // what was sent, whatever the body says
	return &ResponseError{p}
}
