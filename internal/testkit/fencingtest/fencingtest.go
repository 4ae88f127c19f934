// Package fencingtest is the kit of the tests of fencing, in this module and in that of tests.
package fencingtest

import (
	"context"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
)

// Journal is an auditor that keeps its records.
type Journal struct {
	mu      sync.Mutex // protects records
	records []audit.Record
}

// Audit adds a record.
func (j *Journal) Audit(_ context.Context, r audit.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = append(j.records, r)
}

// Take returns the records since the last call.
func (j *Journal) Take() []audit.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	taken := j.records
	j.records = nil
	return taken
}

// Claim returns a claim of "job".
func Claim(token int64) fencing.Claim {
	return fencing.Claim{Name: "job", Token: holdfast.Token(token)}
}

// NewToken is holdfast.NewToken.
func NewToken(t *testing.T, epoch, revision int64) holdfast.Token {
	t.Helper()
	token, err := holdfast.NewToken(epoch, revision)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Do runs an effect that does nothing, and reports whether it ran.
func Do(t *testing.T, s fencing.Store, resource string, c fencing.Claim) (ran bool, err error) {
	t.Helper()
	err = s.Do(t.Context(), resource, c, func(context.Context) error { ran = true; return nil })
	if ran == (err != nil) {
		t.Errorf("%v on %s: ran is %v, error %v", c, resource, ran, err)
	}
	return ran, err
}

// MustSay checks that an error names what an operator needs.
func MustSay(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// Write writes once.
type Write func(ctx context.Context, w *etcdfence.Writer) error

// Writes are the kinds of write. Each sets or deletes "k".
var Writes = map[string]Write{
	"put": func(ctx context.Context, w *etcdfence.Writer) error {
		_, err := w.Put(ctx, "k", "new")
		return err
	},
	"delete": func(ctx context.Context, w *etcdfence.Writer) error {
		_, err := w.Delete(ctx, "k")
		return err
	},
	"txn": func(ctx context.Context, w *etcdfence.Writer) error {
		_, err := w.Txn(ctx).Then(clientv3.OpPut("k", "new")).Else(clientv3.OpPut("k", "else")).Commit()
		return err
	},
}

// ForEachWrite runs a test with each kind of write.
func ForEachWrite(t *testing.T, test func(t *testing.T, write Write)) {
	for name, write := range Writes {
		t.Run(name, func(t *testing.T) { test(t, write) })
	}
}
