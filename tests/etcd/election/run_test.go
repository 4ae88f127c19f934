package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

func TestRunCampaignsAgainAfterEachRevocation(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	done := errors.New("led often enough")
	var last fencing.Token
	terms := 0
	el := newElection(t, srv.Client(t), session.Options{TTL: 2 * time.Second})
	err := el.Run(deadline(t), "v", func(ctx context.Context, term *election.Term) error {
		if term.Token() <= last {
			t.Errorf("token %v after %v", term.Token(), last)
		}
		last = term.Token()
		if terms++; terms == 3 {
			return done
		}
		srv.Revoke(t, term.Lease())
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, done) || errors.Is(err, holdfast.ErrLost) || terms != 3 {
		t.Errorf("%d terms, %v", terms, err)
	}
	if kvs := srv.Keys(t, prefix); len(kvs) != 0 {
		t.Errorf("entries %v", kvs)
	}
}
