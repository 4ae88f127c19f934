package httpfence_test

import (
	"database/sql"
	"errors"
	"net/http"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// Handler over a real database: what the client is told is what is committed.
func TestHandlerOverADatabase(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	j := &journal{}
	g, err := sqlfence.New(db, sqlfence.SQLite, &sqlfence.Options{Auditor: j})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.EnsureSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE counter (n INTEGER NOT NULL CHECK (n < 2)); INSERT INTO counter VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		t.Helper()
		if err := db.QueryRow("SELECT n FROM counter").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	status, end := 200, false
	s := serve(t, httpfence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, ok := sqlfence.TxFromContext(r.Context())
		if !ok {
			t.Error("no transaction")
			return
		}
		if _, err := tx.ExecContext(r.Context(), "UPDATE counter SET n = n + 1"); err != nil {
			t.Error(err)
		}
		if end {
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("Content-Length", "4")
		w.WriteHeader(status)
		w.Write([]byte("done"))
	}), g.Store(), byPath, httpfence.Options{Auditor: j}), 1)

	status = 409
	if resp, _, err := s.put(t, 7, nil); err != nil || resp.StatusCode != 409 || count() != 0 {
		t.Errorf("a handler that answers 409: %v, %v; the counter is %d", resp, err, count())
	}
	status, end = 200, true
	if resp, _, err := s.put(t, 7, nil); err == nil || resp == nil || resp.StatusCode != 500 || count() != 0 {
		t.Errorf("a transaction that ended by itself: %v, %v; the counter is %d", resp, err, count())
	}
	end = false
	if resp, text, err := s.put(t, 7, nil); err != nil || resp.StatusCode != 200 || text != "done" || count() != 1 {
		t.Errorf("%v %q, %v; the counter is %d", resp, text, err, count())
	}
	if _, _, err := s.put(t, 5, nil); !errors.Is(err, fencing.ErrStale) || count() != 1 {
		t.Errorf("stale: %v; the counter is %d", err, count())
	}
	if got := j.take(); len(got) != 1 || got[0].Holder == "" || got[0].Mark != 7 {
		t.Errorf("recorded %+v", got)
	}
}
