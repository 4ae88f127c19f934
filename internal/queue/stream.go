package queue

import (
	"context"
	"strconv"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// streams chooses the stream of a session's watches. They share one, as long as
// that serves them. A stream stays with one member, and with the token it was
// opened with: where that member hangs, or that token has expired or is of
// before the users and roles were changed, no more watches can be made on it,
// for as long as one that was there before keeps it open. Then later ones go to
// a new stream.
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

// leave has later watches use another stream than that of a generation, on which
// one could not be made although etcd answers.
func (s *streams) leave(generation int64) { s.generation.CompareAndSwap(generation, generation+1) }
