package fencetest

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// As texts, 10 comes before 9. A write that is repeated, because its reply was lost, has an equal token.
func olderTokens(t *trial) {
	t.admit(t.write, 9)
	t.admit(t.write, 9)
	t.admit(t.newer, 10)
	t.refuse(t.write, 9) // as a request does that arrives late
	t.refuse(t.newer, 1)
	t.admit(t.write, 10)
	t.admit(t.newer, 100)
	t.refuse(t.write, 99)
}

// From 2^53 on not every number is a double.
func exactTokens(t *trial) {
	const even = holdfast.Token(1 << 53)
	t.admit(t.write, 1<<48-1) // the last one of epoch 0
	t.admit(t.newer, 1<<48|1)
	t.refuse(t.write, 1<<48-1)
	t.admit(t.newer, even+1)
	t.refuse(t.write, even)
}

func malformedClaims(t *trial) {
	for what, c := range map[string]fencing.Claim{
		"without a token":         claim(0),
		"with a negative token":   claim(-7),
		"without a name":          {Token: 7},
		"with a name of 513 byte": {Name: strings.Repeat("n", fencing.MaxName+1), Token: 7},
	} {
		err := t.Write(t.ctx, t.resource, c, what, nothing)
		if !errors.Is(err, fencing.ErrBadClaim) && !errors.Is(err, holdfast.ErrNoToken) {
			t.errorf("a claim %s should be refused with fencing.ErrBadClaim, but the error is: %v", what, err)
		}
		t.expect("")
	}
}

// As a mark such a token would lock the resource for good.
func farAhead(t *trial) {
	far, err := holdfast.NewToken(fencing.MaxEpochStep+1, 1)
	if err != nil {
		t.errorf("%w", err)
	}
	for _, mark := range []holdfast.Token{0, 7} {
		if mark != 0 {
			t.admit(t.write, mark)
		}
		before := t.read()
		if err := t.write(far); !errors.Is(err, fencing.ErrEpochStep) && !errors.Is(err, fencing.ErrBadClaim) {
			t.errorf("with the mark %v, a token of epoch %d should be refused with fencing.ErrEpochStep, but the error is: %v",
				mark, far.Epoch(), err)
		}
		t.expect(before)
	}
	t.admit(t.newer, 8)
	t.admit(t.write, holdfast.Token(1<<48|1)) // an epoch that an operator has raised
}

// Tokens of different locks cannot be compared. A guard refuses the other lock, or keeps a mark for each.
func otherNames(t *trial) {
	t.admit(t.write, 50)
	for _, name := range []string{"fencetest/LOCK", Name + " ", Name + "/", Name + "/x", "fencetest", "%00 'ø"} {
		for _, token := range []holdfast.Token{1, 50, 99} {
			before := t.read()
			err := t.Other(t.ctx, t.resource, fencing.Claim{Name: name, Token: token}, name, nothing)
			switch {
			case errors.Is(err, fencing.ErrOtherName):
				t.expect(before)
			case err != nil:
				t.errorf("token %v of lock %q should be refused with fencing.ErrOtherName, but the error is: %w", token, name, err)
			}
		}
	}
	t.refuse(t.write, 49)
	t.admit(t.write, 51) // 99 was of other locks
}

// Collations of databases take some of these for equal.
func otherResources(t *trial) {
	base := t.resource + "/e"
	names := []string{base, strings.ToUpper(base), base + " ", t.resource + "/é", base + "/e", t.resource + "/e%"}
	for i, name := range names {
		t.resource = name
		switch token := holdfast.Token(50 - i); t.read() {
		case "":
			if err := t.write(token); err != nil && !errors.Is(err, fencing.ErrBadClaim) {
				t.errorf("token %v should be admitted to the new resource %q, but the error is: %w", token, name, err)
			}
		default:
			t.errorf("%q has the data of another resource", name)
		}
	}
	t.resource = base
	t.expect("50")
}

var errBetween = errors.New("the work failed")

func failedWrite(t *trial) {
	for _, token := range []holdfast.Token{5, 7} { // without a mark, and with one
		called := false
		before := t.read()
		err := t.Write(t.ctx, t.resource, claim(token), "failed", func() error { called = true; return errBetween })
		if !called {
			t.skipped = "the guard has no moment between comparison and effect"
			return
		}
		if err == nil || errors.Is(err, fencing.ErrStale) {
			t.errorf("the effect failed, and the error of the write is: %v", err)
		}
		t.expect(before)
		t.admit(t.newer, token+1)
		t.refuse(t.write, token)
	}
}

func canceledWrite(t *trial) {
	t.admit(t.write, 5)
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	err := t.Write(ctx, t.resource, claim(7), "7", func() error { cancel(); return nil })
	t.judge(err, 7)
	t.admit(t.newer, 8)
	t.refuse(t.write, 7)

	cancel()
	err = t.Write(ctx, t.resource, claim(9), "9", nothing)
	t.judge(err, 9)
	t.admit(t.newer, 10)
}

// judge compares the error of a write with what has become of it.
func (t *trial) judge(err error, token holdfast.Token) {
	written := t.read() == token.String()
	switch {
	case err == nil && !written:
		t.errorf("the write of token %v was acknowledged and has no effect", token)
	case written && isRefusal(err):
		t.errorf("the write of token %v took effect, and its error promises that it did not: %w", token, err)
	}
}

// isRefusal reports whether an error says that a write has no effect.
func isRefusal(err error) bool {
	if errors.Is(err, holdfast.ErrOutcomeUnknown) {
		return false
	}
	for _, refusal := range []error{fencing.ErrStale, fencing.ErrNotDone, fencing.ErrOtherName, fencing.ErrBadClaim} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

func lostReply(t *trial) {
	if t.LoseReply == nil {
		t.skipped = "without Guard.LoseReply"
		return
	}
	for _, token := range []holdfast.Token{5, 7} { // without a mark, and with one
		t.LoseReply()
		err := t.write(token)
		t.expect(token.String()) // or LoseReply does something else
		t.judge(err, token)
		t.refuse(t.newer, token-1) // the mark was raised with the effect
		t.admit(t.write, token)
		t.admit(t.newer, token+1)
		t.refuse(t.write, token)
	}
}
