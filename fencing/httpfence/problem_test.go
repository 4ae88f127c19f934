package httpfence_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
)

// A guard with more to say than its mark, such as sqlfence.ErrExpired, is heard by the client.
func TestDetailIsWhatTheRefusalSays(t *testing.T) {
	below := &fencing.MarkError{
		Resource: "r", Claim: fencing.Claim{Name: "job", Token: 5}, Mark: 9,
		Err: errors.New("marks up to 9 have expired: release and acquire again"),
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpfence.Error(w, r, fmt.Errorf("append: %w", below))
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/r", nil))
	resp := w.Result()
	defer func() { _ = resp.Body.Close() }()
	err := httpfence.CheckResponse(resp)
	var refused *httpfence.ResponseError
	if !errors.As(err, &refused) || !errors.Is(err, fencing.ErrStale) || refused.Problem.Detail != below.Error() ||
		!strings.Contains(err.Error(), "release and acquire again") || strings.Contains(err.Error(), "BumpEpoch") {
		t.Errorf("the client has %v", err)
	}
}

func TestOtherResponsesAreNotRefusals(t *testing.T) {
	const problem = "application/problem+json"
	for name, c := range map[string]struct {
		status     int
		mime, body string
	}{
		"handler's own 412":       {412, "text/plain", "If-Match"},
		"another API's problem":   {412, problem, `{"type":"about:blank","status":412}`},
		"malformed problem":       {412, problem, `{`},
		"success":                 {200, problem, `{"type":"` + httpfence.TypeStale + `"}`},
		"no body":                 {412, problem, ""},
		"no problem, by its type": {412, "text/plain", `{"type":"` + httpfence.TypeStale + `"}`},
		"no type at all":          {412, "", `{"type":"` + httpfence.TypeStale + `"}`},
	} {
		resp := &http.Response{
			StatusCode: c.status, Header: http.Header{"Content-Type": {c.mime}}, Body: io.NopCloser(strings.NewReader(c.body)),
		}
		if err := httpfence.CheckResponse(resp); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != c.body || err != nil {
			t.Errorf("%s: the body reads %q afterwards, %v", name, got, err)
		}
	}
}

// A guard without marks knows only that a token is stale.
func TestProblemSaysWhatTheErrorKnows(t *testing.T) {
	if p := httpfence.ProblemOf(fencing.ErrStale); p.Type != httpfence.TypeStale || p.Mark != 0 || p.Detail == "" {
		t.Errorf("%+v", p)
	}
	err := &fencing.OtherNameError{Resource: "r", Want: "lock/a", Got: "lock/b"}
	p := httpfence.ProblemOf(fmt.Errorf("guard: %w", err))
	if p.Type != httpfence.TypeOtherName || p.Detail != err.Error() ||
		p.Resource != "r" || p.Name != "lock/b" || p.Want != "lock/a" {
		t.Errorf("%+v", p)
	}
}

// The handler may have named the length of the answer that it wanted to give.
func TestErrorSaysNothingOfTheLengthOfAnotherAnswer(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "5")
	httpfence.Error(w, httptest.NewRequest(http.MethodGet, "/", nil), holdfast.ErrNoToken)
	if length := w.Header().Get("Content-Length"); length != "" || w.Body.Len() <= 5 {
		t.Errorf("a body of %d bytes has the length %q", w.Body.Len(), length)
	}
}
