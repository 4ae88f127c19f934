package fence

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/names"
)

// ErrMissing is returned by [Read] for a request without a claim.
var ErrMissing = fmt.Errorf("the request has no fencing claim: %w", holdfast.ErrNoToken)

// Read returns the claim of a request and the resource that it may write to. names
// and tokens are all values of the two fields; target returns what the request
// writes to and the name of the lock that guards it. With any error the request
// must be refused; [ErrMissing] says that neither field was there, which the server
// may allow. target is called only for a well-formed claim.
func Read(
	names, tokens []string, target func() (resource, name string, err error),
) (c fencing.Claim, resource string, err error) {
	c, present, err := ParseClaim(names, tokens)
	if !present {
		return c, "", ErrMissing
	}
	if err != nil {
		return c, "", err
	}
	resource, name, err := target()
	if err != nil || resource == "" || name == "" {
		return c, resource, &TargetError{err}
	}
	if c.Name != name {
		return c, resource, &fencing.OtherNameError{Resource: resource, Want: name, Got: c.Name}
	}
	return c, resource, nil
}

// TargetError is a failure of the server's own function that names the resource.
// It does not unwrap, so that nothing in there is taken for a verdict on the claim.
type TargetError struct{ err error }

func (e *TargetError) Error() string {
	if e.err == nil {
		return "the server has no resource or no lock name for this request"
	}
	return "the server cannot tell what this request writes to: " + e.err.Error()
}

// ParseClaim reads a claim from all values of its two fields. present is false only
// if neither has a value. One field without the other, a field that came twice, or
// a value that names.Escape or Token.String does not write, is present and a
// *fencing.ClaimError. (For token zero that Is holdfast.ErrNoToken as well, so test
// present, not the error, for an absent claim.)
func ParseClaim(names, tokens []string) (c fencing.Claim, present bool, err error) {
	if len(names) == 0 && len(tokens) == 0 {
		return fencing.Claim{}, false, nil
	}
	text, err := single("name", names)
	if err != nil {
		return fencing.Claim{}, true, err
	}
	if c.Name, err = unescape(text); err != nil {
		return fencing.Claim{}, true, err
	}
	if text, err = single("token", tokens); err != nil {
		return fencing.Claim{}, true, err
	}
	if c.Token, err = holdfast.ParseToken(text); err != nil {
		return fencing.Claim{}, true, &fencing.ClaimError{Part: "token", Err: err}
	}
	return c, true, nil
}

func unescape(text string) (string, error) {
	name, bad := names.Unescape(text, fencing.MaxName)
	if bad != "" {
		return "", &fencing.ClaimError{Part: "name", Reason: bad}
	}
	return name, nil
}

var errIncomplete = errors.New("missing, although the other field is there")

// single returns the only value of a field. If a field came twice, the next hop
// might choose the other value.
func single(part string, values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", &fencing.ClaimError{Part: part, Err: errIncomplete}
	case 1:
		return values[0], nil
	}
	return "", &fencing.ClaimError{Part: part, Reason: fmt.Sprintf("was sent %d times", len(values))}
}
