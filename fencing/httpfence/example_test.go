package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
)

func Example() {
	// The server: lock "accounts/42" guards account 42. The request says what to
	// change; the handler reads, computes and writes.
	var balances sync.Map
	deposit := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		amount, err := strconv.Atoi(r.PostFormValue("amount"))
		if err != nil {
			http.Error(w, "no amount", http.StatusBadRequest)
			return
		}
		balance, _ := balances.LoadOrStore(r.PathValue("id"), 0)
		balances.Store(r.PathValue("id"), balance.(int)+amount)
		c, _ := fencing.ClaimFromContext(r.Context())
		fmt.Println("server:", balance.(int)+amount, "after", c)
	})
	resourceOf := func(r *http.Request) (resource, name string, err error) {
		id := r.PathValue("id")
		return "account/" + id, "accounts/" + id, nil
	}
	opts := httpfence.Options{Auditor: audit.Func(func(context.Context, audit.Record) {})} // default: it logs
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/deposits", httpfence.Handler(deposit,
		memfence.New(memfence.Options{}), resourceOf, opts))
	srv := httptest.NewServer(mux)
	defer srv.Close()

	// The client, inside locker.Mutex.Do: the context carries the lock.
	client := &http.Client{Transport: &httpfence.Transport{Base: srv.Client().Transport}}
	write := func(lk fencing.Holder) error {
		ctx := fencing.NewContext(context.Background(), lk)
		form := strings.NewReader("amount=100")
		req, err := http.NewRequestWithContext(ctx, "POST", srv.URL+"/accounts/42/deposits", form)
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
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
	// server: 100 after token 1731 of "accounts/42"
	// first:  <nil>
	// server: 200 after token 1802 of "accounts/42"
	// second: <nil>
	// first: stale: true
}
