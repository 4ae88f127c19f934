package sqlfence

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

type workKey struct{}

// openWork is what the context of fn says about the requests around it.
type openWork struct {
	r     *request
	outer *openWork
	over  atomic.Bool // fn has returned
}

// checkNesting refuses a request from within a function that it would wait for, while that
// function waits for it. The database sees no deadlock, because one of the two waits is in
// this process.
func (r *request) checkNesting(ctx context.Context) error {
	w, _ := ctx.Value(workKey{}).(*openWork)
	for ; w != nil; w = w.outer {
		o := w.r
		// SQLite has one writer per file.
		if !w.over.Load() && o.g.db == r.g.db &&
			(r.m.dialect == SQLite || o.m.table == r.m.table && o.resource == r.resource) {
			return &holdfast.ArgumentError{Argument: "ctx", Reason: "is that of a guarded write to " +
				names.Quote(o.resource) + ", for whose end this one would wait: use its transaction instead"}
		}
	}
	return nil
}
