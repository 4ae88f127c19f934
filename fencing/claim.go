package fencing

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/holdfast-go/holdfast/internal/names"
)

// Claim is what a holder presents to a guard: the name of its lock or election,
// and its token. Tokens of different names cannot be compared, so neither is of
// use without the other.
//
// A Claim is no credential. It keeps honest clients that are late from doing
// damage; who may present one at all is for authentication to say, since a claim
// with a large token shuts out everybody else.
type Claim struct {
	Name  string // as the lock's Name method gives it; 1 to MaxName bytes
	Token Token
}

// MaxName bounds the name in a claim, in bytes.
const MaxName = 512

// Validate returns a *[ClaimError] if c cannot be presented: its name is empty
// or longer than [MaxName], or its token is none ([ErrNoToken]).
func (c Claim) Validate() error {
	switch {
	case c.Name == "":
		return &ClaimError{"name", "is empty", nil}
	case len(c.Name) > MaxName:
		return &ClaimError{"name", fmt.Sprintf("is longer than %d bytes", MaxName), nil}
	case c.Token <= 0:
		return &ClaimError{"token", "is zero or negative", ErrNoToken}
	}
	return nil
}

func (c Claim) String() string {
	if c.Name == "" { // a bare token, where the guard needs no name
		return fmt.Sprintf("token %v", c.Token)
	}
	return fmt.Sprintf("token %v of %s", c.Token, names.Quote(c.Name))
}

var (
	// ErrBadClaim is returned for a name and token that are not exactly one
	// name and one token. It is never taken for "no claim". Errors that match it
	// are of type *[ClaimError].
	ErrBadClaim = errors.New("malformed fencing claim")

	// ErrNoName is returned where the name of a holder is needed that is not
	// [Named]. Nothing was sent.
	ErrNoName = errors.New("holder of a fencing token has no name")

	// ErrOtherName is returned when the token of one lock is presented where
	// that of another is needed. Errors that match it are of type *[OtherNameError].
	ErrOtherName = errors.New("fencing token is of another lock")
)

// ClaimError says which part of a claim cannot be used. errors.Is finds
// [ErrBadClaim], and what Err says.
type ClaimError struct {
	Part   string // "name", "token", or the header it came in
	Reason string
	Err    error // of the token, often a *TokenError; may be nil
}

func (e *ClaimError) Error() string {
	if e.Err != nil && e.Reason == "" {
		return fmt.Sprintf("fencing: %s of a claim: %v", e.Part, e.Err)
	}
	return fmt.Sprintf("fencing: %s of a claim %s", e.Part, e.Reason)
}

// Is makes errors.Is(err, ErrBadClaim) true.
func (e *ClaimError) Is(target error) bool { return target == ErrBadClaim }

func (e *ClaimError) Unwrap() error { return e.Err }

// OtherNameError says that a resource is guarded by another lock than the one whose
// token was presented. errors.Is(err, ErrOtherName) is true for each of them.
// No token was compared and nothing was done.
type OtherNameError struct {
	Resource string
	Want     string // the lock that guards the resource
	Got      string // the lock that the claim names
}

func (e *OtherNameError) Error() string {
	return fmt.Sprintf("fencing: %s is guarded by %s, and the token presented is of %s: tokens of different names cannot be compared",
		names.Quote(e.Resource), names.Quote(e.Want), names.Quote(e.Got))
}

// Is makes errors.Is(err, ErrOtherName) true.
func (e *OtherNameError) Is(target error) bool { return target == ErrOtherName }

// Named is what a [Holder] also is if it knows the name under which its tokens
// are ordered. Locks and terms do. Whatever sends a claim needs it.
type Named interface {
	// Name is the name of the lock or election, as it was given when that was
	// made.
	Name() string
}

// Present returns the claim of s, which must be [Named], for sending it to a
// guard. It is the early refusal of every client half, and costs no RPC: a
// source that is lost, released or suspended gives the error of its Check, one
// without a token (or a nil one) [ErrNoToken], one without a name [ErrNoName].
//
// A nil error is not a promise; see [Source]. That is what the guard is for.
func Present(s Source) (Claim, error) {
	if s == nil {
		return Claim{}, ErrNoToken
	}
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer && v.IsNil() {
		return Claim{}, ErrNoToken
	}
	if err := s.Check(); err != nil {
		return Claim{}, err
	}
	c := Claim{Token: s.Token()}
	if c.Token <= 0 {
		return Claim{}, ErrNoToken
	}
	named, ok := s.(Named)
	if !ok {
		return Claim{}, ErrNoName
	}
	if c.Name = named.Name(); c.Name == "" {
		return Claim{}, ErrNoName
	}
	if err := c.Validate(); err != nil {
		return Claim{}, err
	}
	return c, nil
}

type claimKey struct{}

// claimContext is a context and the claim it carries in one allocation, since
// there is one for each request of a server.
type claimContext struct {
	context.Context
	claim Claim
}

func (c *claimContext) Value(key any) any {
	if key == (claimKey{}) {
		return &c.claim
	}
	return c.Context.Value(key)
}

// NewClaimContext returns a context that carries a claim that was presented to
// this process. The server halves do that; [NewContext] is for claims of one's
// own, that is, for holders.
func NewClaimContext(ctx context.Context, c Claim) context.Context {
	return &claimContext{ctx, c}
}

// ClaimFromContext returns the claim that was presented with the request that
// ctx belongs to. There is none where the request was let pass without.
//
// A handler that has the real guarantee from its own store uses it: the claim
// has the name that is expected, and its token is to be compared in the
// transaction that does the work.
func ClaimFromContext(ctx context.Context) (Claim, bool) {
	if c, ok := ctx.Value(claimKey{}).(*Claim); ok {
		return *c, true
	}
	return Claim{}, false
}
