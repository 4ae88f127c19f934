package page

import (
	"context"

	"github.com/holdfast-go/holdfast/election"
)

func lead(context.Context, *election.Term) error { return nil }
