// Package fence is the server half of a fencing guard, shared by httpfence,
// grpcfence and sqlfence: reading the claim of a request, running the effect in a
// store, and deciding what an error says about the work.
package fence
