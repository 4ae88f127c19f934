package page

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/fencing"
)

var n1 string

type accountStore struct {
	fencing.Store
	proxy interface{ dropNextReply() }
}

func openAccounts(*testing.T) *accountStore { return nil }

func (*accountStore) put(ctx context.Context, resource, data string) error { return nil }

func (*accountStore) get(ctx context.Context, resource string) (string, error) { return "", nil }
