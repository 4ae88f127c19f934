package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
)

func Example() {
	// The server: account 42 is guarded by the lock "accounts/42".
	put := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := fencing.ClaimFromContext(r.Context())
		fmt.Println("server: written by", c)
	})
	mux := http.NewServeMux()
	mux.Handle("PUT /accounts/{id}", httpfence.Handler(put, fencing.NewMemoryStore(0), func(r *http.Request) (resource, name string, err error) {
		id := r.PathValue("id")
		return "account/" + id, "accounts/" + id, nil
	}, httpfence.Options{Auditor: fencing.AuditFunc(func(context.Context, fencing.Record) {})}))
	srv := httptest.NewServer(mux)
	defer srv.Close()

	// The client: within locker.Mutex.Do, whose context carries the lock.
	client := &http.Client{Transport: &httpfence.Transport{Base: srv.Client().Transport}}
	write := func(lk fencing.Holder) error {
		ctx := fencing.NewContext(context.Background(), lk)
		req, err := http.NewRequestWithContext(ctx, "PUT", srv.URL+"/accounts/42", strings.NewReader("100"))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return httpfence.CheckResponse(resp)
	}
	first, second := &holder{name: "accounts/42", token: 1731}, &holder{name: "accounts/42", token: 1802}
	fmt.Println("first: ", write(first))
	fmt.Println("second:", write(second))
	fmt.Println("first: stale:", errors.Is(write(first), fencing.ErrStale))
	// Output:
	// server: written by token 1731 of "accounts/42"
	// first:  <nil>
	// server: written by token 1802 of "accounts/42"
	// second: <nil>
	// first: stale: true
}
