package page

import (
	"context"

	"github.com/holdfast-go/holdfast"
)

func report(context.Context, holdfast.Token) error { return nil }
