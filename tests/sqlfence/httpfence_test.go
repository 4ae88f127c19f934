package sqlfence_test

import (
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
)

// The response to the client agrees with what the database has committed.
func TestHandlerWithADatabase(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var j fencingtest.Journal // of both the store and the middleware: each refusal must be recorded once
	g, err := sqlfence.New(db, sqlfence.SQLite, &sqlfence.Options{Auditor: &j})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.EnsureSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE counter (n INTEGER NOT NULL); INSERT INTO counter VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		t.Helper()
		if err := db.QueryRow("SELECT n FROM counter").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	answer, end := 200, (*sql.Tx).Commit // what the handler does; nil: it leaves the end to the guard
	increment := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, ok := sqlfence.TxFromContext(r.Context())
		if !ok {
			t.Error("no transaction")
			return
		}
		if _, err := tx.ExecContext(r.Context(), "UPDATE counter SET n = n + 1"); err != nil {
			t.Error(err)
		}
		if end != nil {
			if err := end(tx); err != nil {
				t.Error(err)
			}
		}
		w.WriteHeader(answer)
	})
	target := func(*http.Request) (resource, name string, err error) { return "counter", "lock/a", nil }
	srv := httptest.NewServer(httpfence.Handler(increment, g.Store(), target, &httpfence.Options{Auditor: &j}))
	defer srv.Close()

	for _, step := range []struct {
		what   string
		answer int
		end    func(*sql.Tx) error
		token  holdfast.Token
		status int
		is     error
		count  int
	}{
		{"handler answers 409", 409, nil, 7, 409, nil, 0},
		{"handler ends the transaction", 200, (*sql.Tx).Rollback, 7, 500, holdfast.ErrOutcomeUnknown, 0},
		{"handler succeeds", 200, nil, 7, 200, nil, 1},
		{"stale token", 200, nil, 5, 412, fencing.ErrStale, 1},
		{"handler commits and answers 409", 409, (*sql.Tx).Commit, 7, 500, holdfast.ErrOutcomeUnknown, 2},
	} {
		answer, end = step.answer, step.end
		status, err := putOverHTTP(t, srv, step.token)
		if status != step.status || !errors.Is(err, step.is) || count() != step.count {
			t.Errorf("%s: %d, %v; the counter is %d", step.what, status, err, count())
		}
	}
	if got := j.Take(); len(got) != 1 || got[0].Holder == "" || got[0].Mark != 7 {
		t.Errorf("recorded %+v", got)
	}
}

// putOverHTTP sends a request to srv as a holder. The error is that of CheckResponse.
func putOverHTTP(t *testing.T, srv *httptest.Server, token holdfast.Token) (status int, err error) {
	t.Helper()
	ctx := fencing.NewContext(t.Context(), &holder{name: "lock/a", token: token})
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
