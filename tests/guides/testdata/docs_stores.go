package page

import (
	"context"

	"github.com/holdfast-go/holdfast/fencing"
)

// Guard is that of examples/redis.
type Guard struct{ DB any }

func (*Guard) Do(ctx context.Context, key string, c fencing.Claim, command string, args ...any) (any, error) {
	return nil, nil
}
