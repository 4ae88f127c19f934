package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"strconv"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// lockName is the lock that guards an account. Clients and service agree on it.
func lockName(account string) string { return "examples/accounts/" + account }

// newService returns the service, and creates its tables. It adds what is posted to /accounts/{id}/deposits to a
// balance, for the newest holder of the account's lock only.
func newService(ctx context.Context, db *sql.DB, auditor audit.Auditor) (http.Handler, error) {
	guard, err := sqlfence.New(db, sqlfence.SQLite, sqlfence.Options{})
	if err != nil {
		return nil, err
	}
	if err := guard.EnsureSchema(ctx); err != nil { // the table of the marks
		return nil, err
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INTEGER NOT NULL);
		INSERT INTO accounts VALUES ('42', 0)`); err != nil {
		return nil, err
	}
	// Which lock guards what is the service's to say: it comes from the path, never from the fencing fields.
	resourceOf := func(r *http.Request) (resource, name string, err error) {
		return "account/" + r.PathValue("id"), lockName(r.PathValue("id")), nil
	}
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/deposits",
		httpfence.Handler(http.HandlerFunc(deposit), guard.Store(), resourceOf, httpfence.Options{Auditor: auditor}))
	return mux, nil
}

// deposit runs in the transaction that has compared the token with the mark. A status below 400 commits it, before the
// answer is sent; any other rolls back.
func deposit(w http.ResponseWriter, r *http.Request) {
	tx, ok := sqlfence.TxFromContext(r.Context())
	amount, err := strconv.Atoi(r.URL.Query().Get("amount"))
	if !ok || err != nil {
		http.Error(w, "amount: want a number", http.StatusBadRequest)
		return
	}
	var balance int
	if err := tx.QueryRowContext(r.Context(),
		"UPDATE accounts SET balance = balance + ? WHERE id = ? RETURNING balance",
		amount, r.PathValue("id")).Scan(&balance); err != nil {
		http.Error(w, "the account could not be written", http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, balance)
}
