package httpfence_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
)

// byPath guards /r/x, by lock "lock/x".
func byPath(r *http.Request) (resource, name string, err error) {
	x, ok := strings.CutPrefix(r.URL.Path, "/r/")
	if !ok {
		return "", "", errors.New("secret: no such resource")
	}
	return "res/" + x, "lock/" + x, nil
}

// effects is a handler that counts, and answers 200.
type effects struct {
	n     int
	claim fencing.Claim
	has   bool
}

func (e *effects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.n++
	e.claim, e.has = fencing.ClaimFromContext(r.Context())
	io.WriteString(w, "done")
}

// send asks h, with the fields as they are given.
func send(h http.Handler, path string, names, tokens []string) *http.Response {
	r := httptest.NewRequest("PUT", path, nil)
	if names != nil {
		r.Header["Fencing-Name"] = names
	}
	if tokens != nil {
		r.Header["Fencing-Token"] = tokens
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// three are the middlewares; all refuse alike what needs no comparison.
func three(e http.Handler, o httpfence.Options) map[string]http.Handler {
	return map[string]http.Handler{
		"Handler": httpfence.Handler(e, fencing.NewMemoryStore(nil), byPath, o),
		"Filter":  httpfence.Filter(e, fencing.NewMemoryStore(nil), byPath, o),
		"Require": httpfence.Require(e, byPath, o),
	}
}

func TestRequestWithoutAUsableClaimIsRefused(t *testing.T) {
	name, one := []string{"lock/a"}, []string{"7"}
	for what, c := range map[string]struct {
		path          string
		names, tokens []string
		status        int
		typ           string
		is            error
		audited       bool
	}{
		"no claim":      {"/r/a", nil, nil, 428, httpfence.TypeMissing, fencing.ErrNoToken, true},
		"no name":       {"/r/a", nil, one, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"no token":      {"/r/a", name, nil, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"zero":          {"/r/a", name, []string{"0"}, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"negative":      {"/r/a", name, []string{"-1"}, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"overflow":      {"/r/a", name, []string{"9223372036854775808"}, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"garbage":       {"/r/a", name, []string{"\x00<script>"}, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"empty":         {"/r/a", name, []string{""}, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"two tokens":    {"/r/a", name, []string{"7", "9"}, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"joined tokens": {"/r/a", name, []string{"7,9"}, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"two names":     {"/r/a", []string{"lock/a", "lock/a"}, one, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"bad name":      {"/r/a", []string{"lock a"}, one, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"long name":     {"/r/a", []string{strings.Repeat("x", 5000)}, one, 400, httpfence.TypeMalformed, fencing.ErrBadClaim, true},
		"another lock":  {"/r/b", name, one, 412, httpfence.TypeOtherName, fencing.ErrOtherName, true},
		"no resource":   {"/x", name, one, 500, httpfence.TypeResource, nil, false},
	} {
		for _, allow := range []bool{false, true} {
			var e effects
			j := &journal{}
			for kind, h := range three(&e, httpfence.Options{AllowMissing: allow, Auditor: j}) {
				resp := send(h, c.path, c.names, c.tokens)
				if allow && what == "no claim" {
					if resp.StatusCode != 200 || e.has {
						t.Errorf("%s, %s: explicitly allowed, and answered %d, claim %v", kind, what, resp.StatusCode, e.claim)
					}
					e.n = 0
					continue
				}
				err := httpfence.CheckResponse(resp)
				var re *httpfence.ResponseError
				if e.n != 0 || resp.StatusCode != c.status || !errors.As(err, &re) || re.Problem.Type != c.typ || re.Problem.Status != c.status || re.Problem.Title == "" {
					t.Errorf("%s, %s: ran %d times, answered %d, %v", kind, what, e.n, resp.StatusCode, err)
				}
				for _, target := range []error{fencing.ErrStale, fencing.ErrNoToken, fencing.ErrBadClaim, fencing.ErrOtherName} {
					if errors.Is(err, target) != (target == c.is) {
						t.Errorf("%s, %s: Is(%v) is wrong for %v", kind, what, target, err)
					}
				}
				body, _ := io.ReadAll(resp.Body)
				var doc map[string]any
				if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" || json.Unmarshal(body, &doc) != nil || doc["status"] != float64(c.status) {
					t.Errorf("%s, %s: %s %s", kind, what, ct, body)
				}
				if strings.Contains(string(body), "secret") || len(body) > 1500 {
					t.Errorf("%s, %s: tells too much: %s", kind, what, body)
				}
				if got := j.take(); (len(got) == 1) != c.audited || c.audited && got[0].Holder != "192.0.2.1:1234" {
					t.Errorf("%s, %s: audited %+v", kind, what, got)
				}
			}
		}
	}
}

// broken is a store with a fault.
type broken struct {
	before, after error
	skip          bool
}

func (b broken) Do(ctx context.Context, _ string, _ fencing.Claim, effect func(context.Context) error) error {
	if b.before != nil || b.skip {
		return b.before
	}
	if err := effect(ctx); err != nil {
		return err
	}
	return b.after
}

func TestStoreThatCannotTellLetsNothingPass(t *testing.T) {
	for name, b := range map[string]broken{
		"fails":           {before: errors.New("secret: unreachable")},
		"is full":         {before: fencing.ErrFull},
		"forgets to call": {skip: true},
	} {
		var e effects
		resp := send(httpfence.Handler(&e, b, byPath), "/r/a", []string{"lock/a"}, []string{"5"})
		err := httpfence.CheckResponse(resp)
		if e.n != 0 || resp.StatusCode != 503 || err == nil || errors.Is(err, fencing.ErrStale) || strings.Contains(err.Error(), "secret") {
			t.Errorf("a store that %s: ran %d times, answered %d, %v", name, e.n, resp.StatusCode, err)
		}
	}
}

func TestPanicOfAHandlerGivesTheResourceBack(t *testing.T) {
	boom := true
	h := httpfence.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if boom {
			panic("boom")
		}
	}), fencing.NewMemoryStore(nil), byPath)
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic was swallowed")
			}
		}()
		send(h, "/r/a", []string{"lock/a"}, []string{"5"})
	}()
	boom = false
	if resp := send(h, "/r/a", []string{"lock/a"}, []string{"5"}); resp.StatusCode != 200 {
		t.Errorf("answered %d", resp.StatusCode)
	}
}

func TestOtherResponsesAreNoRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		typ, txt string
	}{
		"the handler's own 412":     {412, "text/plain", "If-Match"},
		"somebody else's problem":   {412, "application/problem+json", `{"type":"about:blank","status":412}`},
		"a problem that is garbage": {412, "application/problem+json", `{`},
		"success":                   {200, "application/problem+json", `{"type":"` + httpfence.TypeStale + `"}`},
		"no body":                   {412, "application/problem+json", ""},
	} {
		resp := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.typ}}, Body: io.NopCloser(strings.NewReader(c.txt))}
		if err := httpfence.CheckResponse(resp); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != c.txt || err != nil {
			t.Errorf("%s: the body reads %q afterwards, %v", name, got, err)
		}
	}
}

func FuzzHandler(f *testing.F) {
	f.Add("lock/a", "7", "")
	f.Add("lock/a", "0", "7")
	f.Add("", "", "")
	f.Add("lock/%61", "-7", "")
	f.Add("lock/a", "99999999999999999999", "\x00")
	f.Fuzz(func(t *testing.T, name, token, second string) {
		var e effects
		h := httpfence.Handler(&e, fencing.NewMemoryStore(nil), byPath, &httpfence.Options{AllowMissing: true, Auditor: &journal{}})
		tokens := []string{token}
		if second != "" {
			tokens = append(tokens, second)
		}
		resp := send(h, "/r/a", []string{name}, tokens)
		parsed, err := fencing.ParseToken(token)
		valid := err == nil && second == "" && name == "lock/a"
		if valid != (e.n == 1) || valid != (resp.StatusCode == 200) || valid && e.claim != (fencing.Claim{Name: name, Token: parsed}) {
			t.Errorf("%q %q: ran %d times with %v, answered %d", name, tokens, e.n, e.claim, resp.StatusCode)
		}
		if !valid && httpfence.CheckResponse(resp) == nil {
			t.Errorf("%q %q: %d is not a refusal that says so", name, tokens, resp.StatusCode)
		}
	})
}
