// Package memfence guards, in memory, what a single process writes.
//
//	store := memfence.New(memfence.Options{})
//	mux.Handle("POST /accounts/{id}/deposits", httpfence.Handler(deposit, store, target, httpfence.Options{}))
//
// A [Store] holds a resource exclusively from the comparison of the tokens to the end of the effect. It is for
// resources behind it alone.
//
// # Not guaranteed
//
//   - Marks after the end of the process: so it is for resources that end with it, too.
package memfence
