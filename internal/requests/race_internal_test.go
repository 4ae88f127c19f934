package requests

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/backoff"
)

// Metadata of the caller, such as a token, goes along.
func TestLeaderIsRequiredBesideTheMetadataOfTheCaller(t *testing.T) {
	t.Parallel()
	for _, own := range []int{0, 1} {
		ctx := t.Context()
		for range own {
			ctx = metadata.AppendToOutgoingContext(ctx, "x", "y")
		}
		md, _ := metadata.FromOutgoingContext(requireLeader(ctx))
		if len(md.Get("x")) != own || len(md.Get(rpctypes.MetadataRequireLeaderKey)) != 1 {
			t.Errorf("sent with %v", md)
		}
	}
}

// The timer may have fired while the race ends. What it sends then would not be canceled any more.
func TestTimerThatFiresAsTheRaceEndsSendsNothing(t *testing.T) {
	for name, end := range map[string]func(r *race[int]){
		"by a reply":      func(r *race[int]) { r.send(false) },
		"with its caller": (*race[int]).end,
	} {
		s := NewSender(clientv3.NewCtxClient(t.Context()), backoff.Policy{})
		ended := false
		r := newRace(t.Context(), s, Write, s.pauses(Write, nil), func(context.Context) (int, error) {
			if ended {
				t.Errorf("race that ended %s: sent again", name)
			}
			return 0, nil
		})
		end(r)
		ended = true
		r.repeat()
		if r.copies.Wait(); s.callers.owed != 0 {
			t.Errorf("race that ended %s: %d answers owed", name, s.callers.owed)
		}
	}
}
