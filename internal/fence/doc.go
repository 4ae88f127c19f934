// Package fence has what the guards of package fencing share: what a store checks
// first, reading the claim of a request, running the effect in a store, and deciding
// what an error says about the work.
package fence
