package queue

import (
	"context"
	"strconv"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/backoff"
)

// streams chooses the stream of a session's watches. They share one, unless
// etcd's auth is on: a stream keeps the token it was opened with, and once that
// has expired, or users or roles have changed, etcd refuses further watches on
// it, for as long as it is kept open by a watch that was there before. After a
// refusal watches go to a new stream, which has a new token.
type streams struct {
	generation atomic.Int64 // of the stream new watches go to
}

// streamKey is sent along from the second stream on. etcd's client has one
// stream for each set of metadata; etcd does not look at it.
const streamKey = "holdfast-stream"

// context is what to make a watch on, and the generation of its stream.
//
// It comes of the session's context, not of a caller's, whose metadata would
// open a stream of its own.
func (s *streams) context(session context.Context) (context.Context, int64) {
	ctx, generation := clientv3.WithRequireLeader(session), s.generation.Load()
	if generation > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, streamKey, strconv.FormatInt(generation, 10))
	}
	return ctx, generation
}

// refused has later watches use another stream if err, for which one of that
// generation could not be made, may be about the stream's token.
func (s *streams) refused(generation int64, err error) {
	switch backoff.Classify(err) {
	case backoff.Unauthorised, backoff.Transient: // the latter: users or roles have changed
		s.generation.CompareAndSwap(generation, generation+1)
	}
}
