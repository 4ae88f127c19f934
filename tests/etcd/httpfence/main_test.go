package httpfence_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/internal/fencetest"
	"github.com/holdfast-go/holdfast/internal/leak"
)

type journal = fencetest.Journal

func TestMain(m *testing.M) { leak.Main(m) }

// holder is a fencing.Holder that needs no etcd.
type holder struct{ token fencing.Token }

func (h *holder) Name() string             { return "lock/a" }
func (h *holder) Token() fencing.Token     { return h.token }
func (h *holder) Check() error             { return nil }
func (h *holder) Client() *clientv3.Client { return nil }
func (h *holder) IsOwner() clientv3.Cmp    { return clientv3.Cmp{} }

// put sends a request to srv as a holder. The error is that of CheckResponse.
func put(t *testing.T, srv *httptest.Server, token fencing.Token) (status int, err error) {
	t.Helper()
	ctx := fencing.NewContext(t.Context(), &holder{token})
	req, err := http.NewRequestWithContext(ctx, "PUT", srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &httpfence.Transport{Base: srv.Client().Transport}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, httpfence.CheckResponse(resp)
}
