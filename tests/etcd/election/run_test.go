package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

func TestRunCampaignsAgainAfterEachRevocation(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	done := errors.New("led often enough")
	var last holdfast.Token
	terms := 0
	el := newElection(t, srv.Client(t), session.Options{TTL: 2 * time.Second}).With(election.Options{Value: "v"})
	err := el.Run(deadline(t), func(ctx context.Context, term *election.Term) error {
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

// A proxy answers Canceled after etcd has carried the resignation out. If Run took that for a loss, it would drop what
// the function returned, and call it again.
func TestRunWhoseResignationAProxyCancelsReturnsWhatItsFunctionDid(t *testing.T) {
	t.Parallel()
	link := etcdtest.Start(t).Link(t)
	el := newElection(t, link.Client(), session.Options{}).With(election.Options{Value: "v"})
	done := errors.New("done")
	calls := 0
	err := el.Run(deadline(t), func(context.Context, *election.Term) error {
		if calls++; calls == 1 {
			link.LoseReply("Txn", 1, codes.Canceled, testkit.IsTxnThatDeletes)
		}
		return done
	})
	if !errors.Is(err, done) || errors.Is(err, holdfast.ErrLost) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
