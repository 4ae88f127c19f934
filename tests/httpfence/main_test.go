package httpfence_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// byPath guards /r/x, by lock "lock/x".
func byPath(r *http.Request) (resource, name string, err error) {
	x, ok := strings.CutPrefix(r.URL.Path, "/r/")
	if !ok {
		return "", "", errors.New("secret: no such resource")
	}
	return "res/" + x, "lock/" + x, nil
}

// journal is an auditor that remembers.
type journal struct {
	mu      sync.Mutex // protects records
	records []audit.Record
}

func (j *journal) Audit(_ context.Context, r audit.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = append(j.records, r)
}

func (j *journal) take() []audit.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	taken := j.records
	j.records = nil
	return taken
}

func serve(t *testing.T, h http.Handler, version int) *served {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // of handlers that panic
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
	return &served{srv, &http.Client{Transport: &httpfence.Transport{Base: tr}, Timeout: 30 * time.Second}} // of a test that fails
}

// served is a server of either version of HTTP, and a client that holds "lock/a".
type served struct {
	srv    *httptest.Server
	client *http.Client
}

func (s *served) put(t *testing.T, token int64, body io.Reader) (*http.Response, string, error) {
	t.Helper()
	ctx := fencing.NewContext(t.Context(), &holder{name: "lock/a", token: fencing.Token(token)})
	req, err := http.NewRequestWithContext(ctx, "PUT", s.srv.URL+"/r/a", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	fenced := httpfence.CheckResponse(resp)
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = fenced
	}
	return resp, string(text), err
}

// holder is a fencing.Holder whose state a test sets.
type holder struct {
	name  string
	token fencing.Token
	err   error // of Check
}

func (h *holder) Name() string { return h.name }

func (h *holder) Token() fencing.Token { return h.token }

func (h *holder) Check() error { return h.err }

func (h *holder) Client() *clientv3.Client { return nil }

func (h *holder) IsOwner() clientv3.Cmp { return clientv3.Cmp{} }
