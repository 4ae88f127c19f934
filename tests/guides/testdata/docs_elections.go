package page

import (
	"context"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
)

var (
	jobs chan struct{ Key, Result string }
	o    *election.Observer

	weight int

	cache interface {
		Fill(ctx context.Context) error
	}
)

func show(election.Leader, error) {}

func lead(context.Context, *etcdfence.Writer) error { return nil }
