package httpfence_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

type journal = fencingtest.Journal

func TestMain(m *testing.M) { leak.Main(m) }

// holder is a fencing.Holder in a state that the test sets.
type holder struct {
	name  string
	token holdfast.Token
	err   error // of Check
}

func (h *holder) Name() string             { return h.name }
func (h *holder) Token() holdfast.Token    { return h.token }
func (h *holder) Check() error             { return h.err }
func (h *holder) Client() *clientv3.Client { return nil }
func (h *holder) Holding() []clientv3.Cmp  { return nil }

var (
	errLost      = errors.New("lost")
	errSuspended = errors.New("suspended")
)

// byPath guards resource "res/x" at path /r/x with lock "lock/x".
func byPath(r *http.Request) (resource, name string, err error) {
	x, ok := strings.CutPrefix(r.URL.Path, "/r/")
	if !ok {
		return "", "", errors.New("secret: no such resource")
	}
	return "res/" + x, "lock/" + x, nil
}

// effects is a handler that counts its calls and answers 200.
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

// middlewares returns all three around h, with a store each.
func middlewares(h http.Handler, o httpfence.Options) map[string]http.Handler {
	return map[string]http.Handler{
		"Handler": httpfence.Handler(h, memfence.New(memfence.Options{}), byPath, o),
		"Filter":  httpfence.Filter(h, memfence.New(memfence.Options{}), byPath, o),
		"Require": httpfence.Require(h, byPath, o),
	}
}

// send calls h with exactly these header fields.
func send(h http.Handler, path string, names, tokens []string) *http.Response {
	r := httptest.NewRequest("PUT", path, nil)
	if names != nil {
		r.Header["Fencing-Name"] = names
	}
	if tokens != nil {
		r.Header["Fencing-Token"] = tokens
	}
	return answered(h, r)
}

// sendClaim calls h for resource "res/a" with a token of "lock/a".
func sendClaim(h http.Handler, token string) *http.Response {
	return send(h, "/r/a", []string{"lock/a"}, []string{token})
}

func answered(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// served is a server and a client with a Transport.
type served struct {
	srv    *httptest.Server
	client *http.Client
}

func serve(t *testing.T, h http.Handler, version int) *served {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // handlers panic on purpose
	if version == 2 {
		srv.EnableHTTP2 = true
		srv.StartTLS()
	} else {
		srv.Start()
	}
	tr := srv.Client().Transport.(*http.Transport)
	if version == 1 {
		tr.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		srv.Close()
	})
	const failed = 30 * time.Second // ends a test that hangs
	return &served{srv, &http.Client{Transport: &httpfence.Transport{Base: tr}, Timeout: failed}}
}

// put sends a request for "res/a" as a holder of "lock/a". The error is that of the
// client, or of CheckResponse.
func (s *served) put(t *testing.T, token int64, body io.Reader) (*http.Response, string, error) {
	t.Helper()
	ctx := fencing.NewContext(t.Context(), &holder{name: "lock/a", token: holdfast.Token(token)})
	req, err := http.NewRequestWithContext(ctx, "PUT", s.srv.URL+"/r/a", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	refusal := httpfence.CheckResponse(resp)
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = refusal
	}
	return resp, string(text), err
}

func forEachVersion(t *testing.T, test func(t *testing.T, version int)) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP%d", version), func(t *testing.T) { test(t, version) })
	}
}
