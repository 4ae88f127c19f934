package httpfence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

// recorder keeps the requests that it gets, and answers 204.
type recorder struct{ got []*http.Request }

func (b *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	b.got = append(b.got, r)
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}

type closedBody struct {
	io.Reader
	closed int
}

func (b *closedBody) Close() error { b.closed++; return nil }

func TestTransportSendsNameAndToken(t *testing.T) {
	b := &recorder{}
	ctx := fencing.NewContext(t.Context(), &holder{name: "outer", token: 1})
	ctx = fencing.NewContext(ctx, &holder{name: "a b/é", token: 1<<63 - 1})
	req := httptest.NewRequestWithContext(ctx, "PUT", "http://h/x", nil)
	req.Header.Set("Accept", "text/plain")
	if _, err := (&httpfence.Transport{Base: b}).RoundTrip(req); err != nil {
		t.Fatal(err)
	}
	h := b.got[0].Header
	names, tokens := h["Fencing-Name"], h["Fencing-Token"]
	if len(names) != 1 || names[0] != "a%20b/%C3%A9" || len(tokens) != 1 || tokens[0] != "9223372036854775807" {
		t.Errorf("sent %q, %q", names, tokens)
	}
	if h.Get("Accept") != "text/plain" {
		t.Error("other fields are lost")
	}
	if len(req.Header) != 1 {
		t.Errorf("the caller's request was changed: %v", req.Header)
	}
}

func TestHolderThatCannotBeUsedSendsNothing(t *testing.T) {
	good := &holder{name: "job", token: 7}
	for name, c := range map[string]struct {
		holder fencing.Holder
		field  string
		allow  bool
		want   error
	}{
		"lost":                          {&holder{"job", 7, errLost}, "", false, errLost},
		"suspended":                     {&holder{"job", 7, errSuspended}, "", false, errSuspended},
		"lost, missing allowed":         {&holder{"job", 7, errLost}, "", true, errLost},
		"no token":                      {&holder{"job", 0, nil}, "", false, holdfast.ErrNoToken},
		"no token, missing allowed":     {&holder{"job", 0, nil}, "", true, holdfast.ErrNoToken},
		"no name":                       {&holder{"", 7, nil}, "", false, fencing.ErrBadClaim},
		"long name":                     {&holder{strings.Repeat("x", 600), 7, nil}, "", false, fencing.ErrBadClaim},
		"no holder":                     {nil, "", false, holdfast.ErrNoToken},
		"token is set already":          {good, "fencing-token", false, fencing.ErrBadClaim},
		"name is set already":           {good, "Fencing-Name", false, fencing.ErrBadClaim},
		"is set already, and no holder": {nil, "Fencing-Name", false, fencing.ErrBadClaim},
	} {
		b, body := &recorder{}, &closedBody{Reader: strings.NewReader("x")}
		ctx := t.Context()
		if c.holder != nil {
			ctx = fencing.NewContext(ctx, c.holder)
		}
		req, err := http.NewRequestWithContext(ctx, "PUT", "http://user:secret@h/x", body)
		if err != nil {
			t.Fatal(err)
		}
		if c.field != "" {
			req.Header.Set(c.field, "9")
		}
		_, err = (&http.Client{Transport: &httpfence.Transport{Base: b, AllowMissing: c.allow}}).Do(req)
		if !errors.Is(err, c.want) || len(b.got) != 0 {
			t.Errorf("%s: sent %d, error %v", name, len(b.got), err)
		}
		if body.closed == 0 {
			t.Errorf("%s: the body was not closed", name)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v contains the password", name, err)
		}
	}
}

func TestMissingHolderPassesWithAllowMissing(t *testing.T) {
	b := &recorder{}
	req := httptest.NewRequestWithContext(t.Context(), "GET", "http://h/x", nil)
	_, err := (&httpfence.Transport{Base: b, AllowMissing: true}).RoundTrip(req)
	if err != nil || len(b.got) != 1 || len(b.got[0].Header) != 0 {
		t.Errorf("sent %d, %v", len(b.got), err)
	}
}

func TestTransportFindsAFieldWhateverItsCapitalization(t *testing.T) {
	ctx := fencing.NewContext(t.Context(), &holder{name: "lock/a", token: 5})
	req := httptest.NewRequestWithContext(ctx, "PUT", "http://h/x", nil)
	req.Header["fencing-token"] = []string{"9"}
	if _, err := (&httpfence.Transport{Base: discard{}}).RoundTrip(req); !errors.Is(err, fencing.ErrBadClaim) {
		t.Errorf("sent a second token: %v", err)
	}
}

func TestHolderIsCheckedAgainForARedirect(t *testing.T) {
	h := &holder{name: "job", token: 7}
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.Path+" "+strings.Join(r.Header["Fencing-Token"], ","))
		if r.URL.Path == "/lose" {
			h.err = errLost
		}
		if r.URL.Path != "/end" {
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		}
	}))
	defer srv.Close()
	tr := &httpfence.Transport{Base: srv.Client().Transport}
	defer tr.CloseIdleConnections()
	get := func(path string) error {
		req, err := http.NewRequestWithContext(fencing.NewContext(t.Context(), h), "GET", srv.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := get("/start"); err != nil {
		t.Error(err)
	}
	if err := get("/lose"); !errors.Is(err, errLost) {
		t.Errorf("lost before the redirect: %v", err)
	}
	if got := strings.Join(seen, "; "); got != "/start 7; /end 7; /lose 7" {
		t.Errorf("the server saw %s", got)
	}
}

// closeCounter counts the calls of CloseIdleConnections.
type closeCounter struct {
	discard
	calls int
}

func (c *closeCounter) CloseIdleConnections() { c.calls++ }

func TestIdleConnectionsOfTheBaseAreClosed(t *testing.T) {
	byDefault, base := &closeCounter{}, &closeCounter{}
	old := http.DefaultTransport
	http.DefaultTransport = byDefault
	defer func() { http.DefaultTransport = old }()
	for _, c := range []struct {
		base              http.RoundTripper
		ofDefault, ofBase int // calls
	}{{nil, 1, 0}, {base, 0, 1}, {discard{}, 0, 0}} {
		byDefault.calls, base.calls = 0, 0
		(&http.Client{Transport: &httpfence.Transport{Base: c.base}}).CloseIdleConnections()
		if byDefault.calls != c.ofDefault || base.calls != c.ofBase {
			t.Errorf("base %T: %d calls for the default, %d for the base", c.base, byDefault.calls, base.calls)
		}
	}

	// http.DefaultClient may have a Transport, whose Base is not that client.
	own := http.DefaultClient.Transport
	http.DefaultClient.Transport = &httpfence.Transport{}
	defer func() { http.DefaultClient.Transport = own }()
	byDefault.calls = 0
	if http.DefaultClient.CloseIdleConnections(); byDefault.calls != 1 {
		t.Errorf("of the default client: %d calls", byDefault.calls)
	}
}

func TestTransportAllocatesLittle(t *testing.T) {
	var tr http.RoundTripper = &httpfence.Transport{Base: discard{}}
	ctx := fencing.NewContext(context.Background(), &holder{name: "billing/job-7", token: 1731})
	req := httptest.NewRequestWithContext(ctx, "PUT", "http://h/x", nil)
	// The copy of the request, its header, the token as text, and the values.
	if n := testing.AllocsPerRun(200, func() { _, _ = tr.RoundTrip(req) }); n > 5 && !bubble.Race {
		t.Errorf("%v allocations per request", n)
	}
}

// discard sends nothing and answers nothing.
type discard struct{}

func (discard) RoundTrip(*http.Request) (*http.Response, error) { return nil, nil }
