package page

import (
	"context"
	"errors"
)

type Bucket interface {
	Get(ctx context.Context, key string) (object []byte, meta map[string]string, version string, err error)
	PutIf(ctx context.Context, key, version string, object []byte, meta map[string]string) error
}

var ErrPrecondition = errors.New("another version of the object is there")
