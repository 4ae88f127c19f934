package httpfence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
)

func TestStaleRequestHasNoEffect(t *testing.T) {
	var e effects
	j := &journal{}
	for kind, h := range middlewares(&e, httpfence.Options{Auditor: j}) {
		if kind == "Require" {
			continue // compares no tokens
		}
		for i, step := range []struct {
			token  string
			status int
		}{{"5", 200}, {"5", 200}, {"9", 200}, {"5", 412}, {"8", 412}, {"10", 200}} {
			before := e.n
			resp := sendClaim(h, step.token)
			if resp.StatusCode != step.status || (e.n > before) != (step.status == 200) {
				t.Errorf("%s, step %d: token %s got %d, ran %v", kind, i, step.token, resp.StatusCode, e.n > before)
			}
			err := httpfence.CheckResponse(resp)
			if step.status == 200 {
				if err != nil || !e.has || e.claim.Name != "lock/a" || e.claim.Token.String() != step.token {
					t.Errorf("%s, step %d: %v, claim %v", kind, i, err, e.claim)
				}
				continue
			}
			var refused *httpfence.ResponseError
			if !errors.Is(err, fencing.ErrStale) || !errors.As(err, &refused) {
				t.Fatalf("%s, step %d: %v", kind, i, err)
			}
			p := refused.Problem
			if p.Mark != 9 || p.Token.String() != step.token || p.Resource != "res/a" || p.Name != "lock/a" ||
				!strings.Contains(p.Detail, "BumpEpoch") {
				t.Errorf("%s, step %d: %+v", kind, i, p)
			}
			got := j.Take()
			if len(got) != 1 || got[0].Event != audit.Refused || got[0].Mark != 9 || got[0].Resource != "res/a" ||
				got[0].Name != "lock/a" {
				t.Errorf("%s, step %d: recorded %+v", kind, i, got)
			}
		}
	}
}

// The request with token 5 is paused in its effect, and 7 arrives.
func TestHandlerKeepsANewerHolderOutUntilTheEffectIsOver(t *testing.T) {
	for kind, guarded := range map[string]bool{"Handler": true, "Filter": false} {
		admitted, resume := make(chan struct{}), make(chan struct{})
		var mu sync.Mutex
		var order []string
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, _ := fencing.ClaimFromContext(r.Context())
			if c.Token == 5 {
				close(admitted)
				<-resume
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, c.Token.String())
		})
		store := memfence.New(memfence.Options{})
		front := httpfence.Filter(h, store, byPath, httpfence.Options{})
		if guarded {
			front = httpfence.Handler(h, store, byPath, httpfence.Options{})
		}
		var wg sync.WaitGroup
		wg.Go(func() { sendClaim(front, "5") })
		<-admitted
		if guarded {
			// With a canceled context, a wait for the resource is an error at once.
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := store.Admit(ctx, "res/a", fencing.Claim{Name: "lock/a", Token: 7})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: 7 was admitted during the effect of 5: %v", kind, err)
			}
			wg.Go(func() { sendClaim(front, "7") })
		} else {
			sendClaim(front, "7")
		}
		close(resume)
		wg.Wait()
		got, want := strings.Join(order, " "), "5 7"
		if !guarded {
			want = "7 5" // a filter cannot prevent this, as its documentation says
		}
		if got != want {
			t.Errorf("%s: effects in the order %s, want %s", kind, got, want)
		}
	}
}

func TestRequestWithoutAWellFormedClaimIsRefused(t *testing.T) {
	name, token := []string{"lock/a"}, []string{"7"}
	malformed := func(names, tokens []string) refusalTest {
		return refusalTest{"/r/a", names, tokens, 400, httpfence.TypeMalformed, fencing.ErrBadClaim}
	}
	for what, c := range map[string]refusalTest{
		"no claim":       {"/r/a", nil, nil, 428, httpfence.TypeMissing, holdfast.ErrNoToken},
		"another lock":   {"/r/b", name, token, 412, httpfence.TypeOtherName, fencing.ErrOtherName},
		"no resource":    {"/x", name, token, 500, httpfence.TypeResource, fencing.ErrNotDone},
		"no name":        malformed(nil, token),
		"no token":       malformed(name, nil),
		"zero":           malformed(name, []string{"0"}),
		"negative":       malformed(name, []string{"-1"}),
		"overflow":       malformed(name, []string{"9223372036854775808"}),
		"garbage":        malformed(name, []string{"\x00<script>"}),
		"empty":          malformed(name, []string{""}),
		"two tokens":     malformed(name, []string{"7", "9"}),
		"joined tokens":  malformed(name, []string{"7,9"}),
		"two names":      malformed([]string{"lock/a", "lock/a"}, token),
		"unescaped name": malformed([]string{"lock a"}, token),
		"long name":      malformed([]string{strings.Repeat("x", 5000)}, token),
	} {
		for _, allowMissing := range []bool{false, true} {
			var e effects
			j := &journal{}
			for kind, h := range middlewares(&e, httpfence.Options{AllowMissing: allowMissing, Auditor: j}) {
				t.Run(kind+", "+what, func(t *testing.T) {
					resp := send(h, c.path, c.names, c.tokens)
					if allowMissing && what == "no claim" {
						if resp.StatusCode != 200 || e.n != 1 || e.has {
							t.Errorf("AllowMissing: ran %d times, got %d, claim %v", e.n, resp.StatusCode, e.claim)
						}
						e.n = 0
						return
					}
					c.check(t, resp, e.n, j.Take())
				})
			}
		}
	}
}

type refusalTest struct {
	path          string
	names, tokens []string
	status        int
	typ           string
	is            error
}

func (c refusalTest) check(t *testing.T, resp *http.Response, ran int, records []audit.Record) {
	err := httpfence.CheckResponse(resp)
	var refused *httpfence.ResponseError
	if ran != 0 || resp.StatusCode != c.status || !errors.As(err, &refused) {
		t.Fatalf("ran %d times, got %d, %v", ran, resp.StatusCode, err)
	}
	if p := refused.Problem; p.Type != c.typ || p.Status != c.status || p.Title == "" {
		t.Errorf("problem is %+v", p)
	}
	for _, target := range []error{
		fencing.ErrStale, holdfast.ErrNoToken, fencing.ErrBadClaim, fencing.ErrOtherName, fencing.ErrNotDone,
	} {
		if errors.Is(err, target) != (target == c.is) {
			t.Errorf("errors.Is(%v, %v) is %v", err, target, errors.Is(err, target))
		}
	}
	body, _ := io.ReadAll(resp.Body)
	var doc map[string]any
	if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" || json.Unmarshal(body, &doc) != nil ||
		doc["status"] != float64(c.status) {
		t.Errorf("%s %s", ct, body)
	}
	if strings.Contains(string(body), "secret") || len(body) > 1500 {
		t.Errorf("tells too much: %s", body)
	}
	recorded := c.typ != httpfence.TypeResource // the server's own fault
	if (len(records) == 1) != recorded || recorded && records[0].Holder != "192.0.2.1:1234" {
		t.Errorf("recorded %+v", records)
	}
}

// A proxy in the same process, or a cloud adaptor, may not make keys canonical.
func TestClaimIsFoundWhateverTheCapitalizationOfItsFields(t *testing.T) {
	for _, keys := range [][2]string{
		{"fencing-name", "fencing-token"}, {"FENCING-NAME", "FENCING-TOKEN"}, {"Fencing-Name", "fencing-token"},
	} {
		var e effects
		for kind, h := range middlewares(&e, httpfence.Options{AllowMissing: true, Auditor: &journal{}}) {
			ask := func(token string, more ...string) *http.Response {
				r := httptest.NewRequest("PUT", "/r/a", nil)
				r.Header[keys[0]] = []string{"lock/a"}
				r.Header[keys[1]] = []string{token}
				for _, key := range more {
					r.Header[key] = []string{"9"}
				}
				return answered(h, r)
			}
			if resp := ask("7"); resp.StatusCode != 200 || e.claim != (fencing.Claim{Name: "lock/a", Token: 7}) {
				t.Errorf("%s, %v: got %d with %v", kind, keys, resp.StatusCode, e.claim)
			}
			if resp := ask("7", "fEncing-token"); resp.StatusCode != 400 {
				t.Errorf("%s, %v: a second token got %d", kind, keys, resp.StatusCode)
			}
			if resp := ask("5"); kind != "Require" && resp.StatusCode != 412 {
				t.Errorf("%s, %v: a stale token got %d", kind, keys, resp.StatusCode)
			}
			e.claim = fencing.Claim{}
		}
	}
}

// brokenStore is a store with a fault.
type brokenStore struct {
	err  error
	skip bool // return err without calling the effect
}

func (b brokenStore) Do(ctx context.Context, _ string, _ fencing.Claim, effect func(context.Context) error) error {
	if b.skip {
		return b.err
	}
	if err := effect(ctx); err != nil {
		return err
	}
	return b.err
}

func TestStoreThatFailsLetsNothingPass(t *testing.T) {
	silenceLog(t)
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	for name, b := range map[string]brokenStore{
		"fails":               {skip: true, err: errors.New("secret: unreachable")},
		"is full":             {skip: true, err: fencing.ErrFull},
		"returns without run": {skip: true},
	} {
		var e effects
		log.Reset()
		resp := sendClaim(httpfence.Handler(&e, b, byPath, httpfence.Options{}), "5")
		err := httpfence.CheckResponse(resp)
		if e.n != 0 || resp.StatusCode != 503 || err == nil || errors.Is(err, fencing.ErrStale) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("store %s: ran %d times, got %d, %v", name, e.n, resp.StatusCode, err)
		}
		if b.err != nil && !strings.Contains(log.String(), b.err.Error()) {
			t.Errorf("store %s: logged %q", name, &log)
		}
	}
}

func TestPanicOfAHandlerReleasesTheResource(t *testing.T) {
	boom := true
	h := httpfence.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if boom {
			panic("boom")
		}
	}), memfence.New(memfence.Options{}), byPath, httpfence.Options{})
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic was swallowed")
			}
		}()
		sendClaim(h, "5")
	}()
	boom = false
	if resp := sendClaim(h, "5"); resp.StatusCode != 200 {
		t.Errorf("got %d", resp.StatusCode)
	}
}

func TestInvalidArgumentsPanic(t *testing.T) {
	e, store := &effects{}, memfence.New(memfence.Options{})
	for name, build := range map[string]func(){
		"httpfence: h":                func() { httpfence.Handler(nil, store, byPath, httpfence.Options{}) },
		"httpfence: store":            func() { httpfence.Handler(e, nil, byPath, httpfence.Options{}) },
		"httpfence: filter":           func() { httpfence.Filter(e, nil, byPath, httpfence.Options{}) },
		"httpfence: resourceOf":       func() { httpfence.Require(e, nil, httpfence.Options{}) },
		"httpfence.Options.MaxAnswer": func() { httpfence.Handler(e, store, byPath, httpfence.Options{MaxAnswer: -1}) },
	} {
		func() {
			defer func() {
				if bad, ok := recover().(*holdfast.ArgumentError); !ok || bad.Argument != name {
					t.Errorf("%s: no panic with an ArgumentError, but %v", name, bad)
				}
			}()
			build()
		}()
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
		h := httpfence.Handler(&e, memfence.New(memfence.Options{}), byPath,
			httpfence.Options{AllowMissing: true, Auditor: &journal{}})
		tokens := []string{token}
		if second != "" {
			tokens = append(tokens, second)
		}
		resp := send(h, "/r/a", []string{name}, tokens)
		parsed, err := holdfast.ParseToken(token)
		valid := err == nil && second == "" && name == "lock/a"
		if valid != (e.n == 1) || valid != (resp.StatusCode == 200) ||
			valid && e.claim != (fencing.Claim{Name: name, Token: parsed}) {
			t.Errorf("%q %q: ran %d times with %v, got %d", name, tokens, e.n, e.claim, resp.StatusCode)
		}
		if !valid && httpfence.CheckResponse(resp) == nil {
			t.Errorf("%q %q: got %d without a problem", name, tokens, resp.StatusCode)
		}
	})
}
