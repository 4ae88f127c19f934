package page

import (
	"context"

	"github.com/holdfast-go/holdfast/election"
)

var (
	jobs chan struct{ Key, Result string }
	o    *election.Observer

	cache interface {
		Fill(ctx context.Context) error
		Follow(ctx context.Context, until <-chan struct{}) error
	}
)

func show(election.Leader, error) {}
