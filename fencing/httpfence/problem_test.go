package httpfence_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fencing/httpfence"
)

func TestOtherResponsesAreNotRefusals(t *testing.T) {
	const problem = "application/problem+json"
	for name, c := range map[string]struct {
		status     int
		mime, body string
	}{
		"handler's own 412":     {412, "text/plain", "If-Match"},
		"another API's problem": {412, problem, `{"type":"about:blank","status":412}`},
		"malformed problem":     {412, problem, `{`},
		"success":               {200, problem, `{"type":"` + httpfence.TypeStale + `"}`},
		"no body":               {412, problem, ""},
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
