package fence

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// CheckUse returns why a store cannot judge a claim on a resource, or nil: ctx is nil, or a name or the token is
// malformed.
func CheckUse(ctx context.Context, resource string, c fencing.Claim) error {
	if err := CheckReset(ctx, resource); err != nil {
		return err
	}
	return c.Validate()
}

// CheckReset returns why a store cannot delete the mark of a resource, or nil.
func CheckReset(ctx context.Context, resource string) error {
	switch {
	case ctx == nil:
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	case resource == "":
		return &fencing.ClaimError{Part: "resource", Reason: "is empty"}
	case len(resource) > fencing.MaxResource:
		return &fencing.ClaimError{Part: "resource", Reason: fmt.Sprintf("is longer than %d bytes", fencing.MaxResource)}
	}
	return nil
}
