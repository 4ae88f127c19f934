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
	"github.com/holdfast-go/holdfast/internal/fence"
)

// The problem types. Each is also the address of its explanation.
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

// Problem is the body of a refusal, in the format of RFC 9457.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	Resource string         `json:"resource,omitempty"`
	Name     string         `json:"name,omitempty"` // the lock of the claim
	Want     string         `json:"want,omitempty"` // other-name: the lock that guards the resource
	Token    holdfast.Token `json:"token,omitzero"` // of the claim, as a string
	Mark     holdfast.Token `json:"mark,omitzero"`  // stale: the larger token that the store has seen
}

// ProblemOf returns the problem that [Error] answers err with. The status is 503 only if err proves
// that nothing was done. Errors of the server's own store or functions are not quoted; a refusal is,
// whole if there is no *fencing.MarkError or *fencing.OtherNameError in it.
func ProblemOf(err error) Problem {
	var (
		body   *bodyError
		answer *answerError
	)
	switch {
	case errors.As(err, new(*fence.TargetError)):
		return Problem{Type: TypeResource, Title: "The server cannot tell what the request writes to",
			Status: http.StatusInternalServerError}
	case errors.As(err, &body):
		return Problem{Type: TypeBody, Title: "The request's body cannot be used",
			Status: body.status, Detail: body.Error()}
	}
	switch fence.VerdictOf(err) {
	case fence.Stale:
		return staleProblem(err)
	case fence.OtherName:
		return otherNameProblem(err)
	case fence.BadClaim:
		return Problem{Type: TypeMalformed, Title: "Fencing claim is malformed",
			Status: http.StatusBadRequest, Detail: err.Error()}
	case fence.NoClaim:
		return Problem{Type: TypeMissing, Title: "Fencing claim is required",
			Status: http.StatusPreconditionRequired, Detail: err.Error()}
	case fence.NothingDone:
		return Problem{Type: TypeStore, Title: "Fencing tokens cannot be compared now",
			Status: http.StatusServiceUnavailable,
			Detail: "nothing was done; the request may be repeated while the lock is held"}
	case fence.Done, fence.OutcomeUnknown:
	}
	p := Problem{Type: TypeUnknown, Title: "The outcome is unknown",
		Status: http.StatusInternalServerError,
		Detail: "the work may have been done, or may be done later; read back before repeating it"}
	if errors.As(err, &answer) {
		p.Detail = answer.Error()
	}
	return p
}

func staleProblem(err error) Problem {
	p := Problem{Type: TypeStale, Title: "Fencing token is stale",
		Status: http.StatusPreconditionFailed, Detail: err.Error()}
	var below *fencing.MarkError
	if errors.As(err, &below) { // otherwise of a guard without marks
		p.Detail, p.Resource, p.Mark = below.Error(), below.Resource, below.Mark
		p.Name, p.Token = below.Claim.Name, below.Claim.Token
	}
	return p
}

func otherNameProblem(err error) Problem {
	p := Problem{Type: TypeOtherName, Title: "Fencing token is of another lock",
		Status: http.StatusPreconditionFailed, Detail: err.Error()}
	var other *fencing.OtherNameError
	if errors.As(err, &other) {
		p.Detail, p.Resource, p.Name, p.Want = other.Error(), other.Resource, other.Got, other.Want
	}
	return p
}

// Error answers with the problem of err, for handlers behind [Require] or [Filter] whose own guard
// failed. Call it before anything is written to w. A nil err is answered as an unknown outcome. No
// audit record is written.
func Error(w http.ResponseWriter, r *http.Request, err error) {
	p := ProblemOf(err)
	body, merr := json.Marshal(p)
	if merr != nil {
		body = []byte("{}") // unreachable: zero tokens are omitted
	}
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // if that fails, the client is gone
	}
}

// ResponseError is a refusal as the client sees it. By its type, errors.Is finds
// [fencing.ErrStale], [fencing.ErrOtherName], [holdfast.ErrNoToken] ("missing"),
// [fencing.ErrBadClaim] ("malformed"), holdfast.ErrOutcomeUnknown ("unknown"), or
// [fencing.ErrNotDone] ("store", "resource" and "body").
type ResponseError struct{ Problem Problem }

func (e *ResponseError) Error() string {
	if e.Problem.Detail != "" {
		return fmt.Sprintf("httpfence: server answered %d: %s: %s", e.Problem.Status, e.Problem.Title, e.Problem.Detail)
	}
	return fmt.Sprintf("httpfence: server answered %d: %s", e.Problem.Status, e.Problem.Title)
}

// Is reports whether target is the error that the problem's type stands for.
func (e *ResponseError) Is(target error) bool {
	switch e.Problem.Type {
	case TypeStale:
		return target == fencing.ErrStale
	case TypeOtherName:
		return target == fencing.ErrOtherName
	case TypeMissing:
		return target == holdfast.ErrNoToken
	case TypeMalformed:
		return target == fencing.ErrBadClaim
	case TypeStore, TypeResource, TypeBody:
		return target == fencing.ErrNotDone
	case TypeUnknown:
		return target == holdfast.ErrOutcomeUnknown
	}
	return false
}

// maxProblem bounds how much of a body is read in search of a problem.
const maxProblem = 16 << 10

// CheckResponse returns a *[ResponseError] if resp is a refusal of this package, and nil for any other
// response, failures included. The body can still be read, and has to be closed.
func CheckResponse(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusBadRequest,
		http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable, http.StatusInternalServerError:
	default:
		return nil
	}
	mt, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || mt != "application/problem+json" {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // the next read meets the same error
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	var p Problem
	if json.Unmarshal(body, &p) != nil || !strings.HasPrefix(p.Type, typeBase) {
		return nil
	}
	p.Status = resp.StatusCode // whatever the body says
	return &ResponseError{p}
}
