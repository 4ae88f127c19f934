// Package fencetest tests guards: what compares the tokens of writes. The author of a store describes how to write
// through the guard and how to read what stands there, and [Test] does the rest: stale writers, one that is paused
// in its effect, writes that fail, canceled ones, lost replies, other locks, and many writers at once.
//
//	func TestGuardOfAccounts(t *testing.T) {
//		accounts := open(t) // your storage
//		fencetest.Test(t, fencetest.Guard{
//			Write: func(
//				ctx context.Context, resource string, c fencing.Claim, data string, between func() error,
//			) error {
//				return accounts.Do(ctx, resource, c, func(ctx context.Context) error { // your fencing.Store
//					return errors.Join(accounts.put(ctx, resource, data), between())
//				})
//			},
//			Read: accounts.read,
//		})
//	}
//
// # Not guaranteed
//
// A guard that passes may still be wrong where the storage is: after a failover to a replica, a restore, or a crash
// that takes acknowledged writes. docs/fencing.md lists such cases for the guards of this module.
package fencetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// Name is the lock that guards all resources of a test. A server that decides by itself which lock guards a resource
// has to answer this one.
const Name = "fencetest/lock"

// Write replaces the data of a resource, as the holder of c would, and returns the error of the guard. In each try it
// calls between, after the comparison of tokens and before the effect can be seen by others: a writer may be paused
// there. The later the better: in a transaction that is after its last statement and before its commit. If between
// returns an error, the write must not take effect, and Write must fail. A guard that compares and writes in one
// request has no such moment, and does not call between.
//
// Writes are made by several goroutines at once. The resource and the data are short texts.
type Write func(
	ctx context.Context, resource string, c fencing.Claim, data string, between func() error,
) error

// Guard is a guard under test, with what it guards.
type Guard struct {
	// Write writes through the guard. It is required.
	Write Write

	// Read returns the data of a resource, "" if there is none. It is required. It reads where writes take effect: a
	// replica or a cache, which may be behind, makes a good guard fail.
	Read func(ctx context.Context, resource string) (data string, err error)

	// Other writes as another process does, with a guard of its own over the same storage. Newer holders write with it.
	// Without it nothing is said about several processes: marks in memory pass. Default: Write.
	Other Write

	// LoseReply makes the next Write take effect in the storage and lose its reply on the way back, as when a connection
	// breaks. Default nil: that is not tested.
	LoseReply func()
}

// Test tests a guard. Each check is a subtest and has resources of its own, with new names, so the storage may be in
// use. It takes the time of 200 writes and as many reads, and a tenth of a second.
func Test(t *testing.T, g Guard) {
	t.Helper()
	if g.Write == nil || g.Read == nil {
		t.Fatal("fencetest: Guard.Write and Guard.Read are required")
	}
	if g.Other == nil {
		g.Other = g.Write
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			tr := newTrial(t.Context(), g)
			if c.run(tr); tr.skipped != "" {
				t.Log("not tested: " + tr.skipped)
			}
			for _, err := range tr.errs {
				t.Error(err)
			}
		})
	}
}

// check is one thing that a guard must do.
type check struct {
	name string
	run  func(t *trial)
}

var checks = []check{
	{"older tokens are refused", olderTokens},
	{"large tokens are compared exactly", exactTokens},
	{"malformed claims are refused", malformedClaims},
	{"a token far ahead is refused", farAhead},
	{"locks are told apart", otherNames},
	{"resources are told apart", otherResources},
	{"a write that fails has no effect", failedWrite},
	{"a canceled write is told rightly", canceledWrite},
	{"a paused writer is not overtaken, or is refused", pausedWriter},
	{"a lost reply is an unknown outcome", lostReply},
	{"many writers", manyWriters},
}

// trial is one check of one guard.
type trial struct {
	Guard
	ctx      context.Context
	resource string // never used before
	errs     []error
	skipped  string // why nothing could be tested
}

func newTrial(ctx context.Context, g Guard) *trial {
	return &trial{Guard: g, ctx: ctx, resource: "fencetest/" + rand.Text()}
}

func (t *trial) errorf(format string, args ...any) {
	t.errs = append(t.errs, fmt.Errorf(format, args...))
}

func claim(token holdfast.Token) fencing.Claim { return fencing.Claim{Name: Name, Token: token} }

// nothing is a between without a pause.
func nothing() error { return nil }

// write writes the token as data.
func (t *trial) write(token holdfast.Token) error {
	return t.Write(t.ctx, t.resource, claim(token), token.String(), nothing)
}

// newer writes in the other process.
func (t *trial) newer(token holdfast.Token) error {
	return t.Other(t.ctx, t.resource, claim(token), token.String(), nothing)
}

// admit expects that a write of this token takes effect.
func (t *trial) admit(write func(holdfast.Token) error, token holdfast.Token) {
	if err := write(token); err != nil {
		t.errorf("token %v should be admitted, but the error is: %w", token, err)
		return
	}
	t.expect(token.String())
}

// refuse expects that a write of this token is refused as stale and changes nothing.
func (t *trial) refuse(write func(holdfast.Token) error, token holdfast.Token) {
	before := t.read()
	switch err := write(token); {
	case err == nil:
		t.errorf("token %v should be refused, because a larger one has written; it was admitted", token)
	case !errors.Is(err, fencing.ErrStale):
		t.errorf("token %v should be refused with fencing.ErrStale, but the error is: %w", token, err)
	}
	t.expect(before)
}

// expect checks the data of the resource.
func (t *trial) expect(want string) {
	if got := t.read(); got != want {
		t.errorf("the data should be %q, but is %q", want, got)
	}
}

func (t *trial) read() string {
	data, err := t.Read(t.ctx, t.resource)
	if err != nil {
		t.errorf("Guard.Read failed: %w", err)
	}
	return data
}
