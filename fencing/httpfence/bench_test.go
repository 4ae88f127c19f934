package httpfence_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

// nothing is a ResponseWriter that allocates nothing.
type nothing struct{ h http.Header }

func (n nothing) Header() http.Header         { return n.h }
func (n nothing) Write(b []byte) (int, error) { return len(b), nil }
func (n nothing) WriteHeader(int)             {}

// exchange returns a guarded handler that does nothing, and a request for it.
func exchange() (h http.Handler, w http.ResponseWriter, r *http.Request) {
	h = httpfence.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		memfence.New(memfence.Options{}),
		func(*http.Request) (string, string, error) { return "account/42", "accounts/42", nil }, httpfence.Options{})
	r = httptest.NewRequest("PUT", "/accounts/42", nil)
	r.Header.Set("Fencing-Name", "accounts/42")
	r.Header.Set("Fencing-Token", "1731")
	return h, nothing{http.Header{}}, r
}

func TestMiddlewareAllocatesLittle(t *testing.T) {
	h, w, r := exchange()
	// The context with the claim, the copy of the request with that context, the
	// effect, its context, record and method value, the response. Reading and comparing: none.
	if n := testing.AllocsPerRun(200, func() { h.ServeHTTP(w, r) }); n > 7 && !bubble.Race {
		t.Errorf("%v allocations per request", n)
	}
}

func BenchmarkHandler(b *testing.B) {
	h, w, r := exchange()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

func BenchmarkBareHandler(b *testing.B) {
	var h http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	_, w, r := exchange()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

func BenchmarkTransport(b *testing.B) {
	var tr http.RoundTripper = &httpfence.Transport{Base: discard{}}
	ctx := fencing.NewContext(context.Background(), &holder{name: "accounts/42", token: 1731})
	req := httptest.NewRequestWithContext(ctx, "PUT", "http://h/x", nil)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = tr.RoundTrip(req)
	}
}
