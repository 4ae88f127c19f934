package fencing

import (
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Claim is what a holder presents to a guard in another process. It is not a credential: authenticate
// clients.
type Claim struct {
	Name  string // of the lock or election, or NAME/ of each shard of a name; 1 to MaxName bytes
	Token holdfast.Token
}

// MaxName is the longest name in a claim, in bytes.
const MaxName = 512

// Validate returns a *[ClaimError] if the name is empty or longer than [MaxName], or if there is no
// token (then it Is [holdfast.ErrNoToken] as well).
func (c Claim) Validate() error {
	switch {
	case c.Name == "":
		return &ClaimError{Part: "name", Reason: "is empty"}
	case len(c.Name) > MaxName:
		return &ClaimError{Part: "name", Reason: fmt.Sprintf("is longer than %d bytes", MaxName)}
	case c.Token <= 0:
		return &ClaimError{"token", c.Token.String(), holdfast.ErrNoToken}
	default:
		return nil
	}
}

// String returns the claim for messages, such as `token 7 of "job"`.
func (c Claim) String() string {
	if c.Name == "" { // a bare token, where the guard needs no name
		return fmt.Sprintf("token %v", c.Token)
	}
	return fmt.Sprintf("token %v of %s", c.Token, names.Quote(c.Name))
}

// Present returns the claim of h, to be sent to a guard. The error is that of h's Check, [holdfast.ErrNoToken]
// if h is nil or has no token, or a *[ClaimError] for the name.
func Present(h Holder) (Claim, error) {
	if names.IsNil(h) {
		return Claim{}, holdfast.ErrNoToken
	}
	if err := h.Check(); err != nil {
		return Claim{}, err
	}
	c := Claim{Name: names.Claimed(h), Token: h.Token()}
	if c.Token <= 0 {
		return Claim{}, holdfast.ErrNoToken
	}
	if err := c.Validate(); err != nil {
		return Claim{}, err
	}
	return c, nil
}
