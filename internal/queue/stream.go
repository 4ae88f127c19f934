package queue

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

const (
	// armingPerStream is how many watches may be in creation on one stream before another stream is used. etcd's client
	// creates the watches of a stream one after the other, a round trip each, and a waiter hears of no release before
	// that.
	armingPerStream = 2

	// maxStreams bounds the streams of a session.
	maxStreams = 512

	// armWait is how long creating one watch may take. If it takes longer, the
	// stream is presumed to be on a member that hangs.
	armWait = time.Second

	// progressEvery is how often progress is requested on a stream, and silentAfter
	// the time without any response after which the stream is given up. A watch on
	// a member that hangs is as silent as one that has nothing to tell.
	progressEvery = 2 * time.Second
	silentAfter   = 5 * time.Second
)

// streams are the streams of a session's watches. A watch uses the first stream that is not busy creating watches, so a
// session with few waiters has one stream. etcd's client closes a stream with its last watch.
//
// A stream stays with one member, and with the auth token it was opened with. If the member hangs, or the token expires
// or predates a change of roles, the stream creates no further watch, while older watches may keep it open. Later
// watches then use another stream.
type streams struct {
	mu   sync.Mutex // protects what follows
	open []*stream
}

type stream struct {
	number   int64
	arming   int       // watches that are being created on it; protected by streams.mu
	progress time.Time // when progress was requested last; protected by streams.mu
}

// pick returns the stream for a new watch, and how long creating it may take. The
// caller must call armed or failed afterwards.
func (s *streams) pick() (*stream, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var least *stream
	for _, st := range s.open {
		if least == nil || st.arming < least.arming {
			least = st
		}
		if st.arming < armingPerStream {
			least = st
			break
		}
	}
	if least == nil || least.arming >= armingPerStream && len(s.open) < maxStreams {
		least = s.addLocked()
	}
	least.arming++
	return least, time.Duration(least.arming) * armWait
}

func (s *streams) addLocked() *stream {
	st := &stream{number: lastStream.Add(1)}
	s.open = append(s.open, st)
	return st
}

// armed records that a watch was created on st, or failed for a reason other than the stream.
func (s *streams) armed(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.arming--
}

// failed records that a watch could not be created on st although etcd answers.
// Later watches go to other streams.
func (s *streams) failed(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.arming--
	s.dropLocked(st)
}

// drop makes later watches use other streams, because st is silent.
func (s *streams) drop(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(st)
}

func (s *streams) dropLocked(st *stream) {
	s.open = slices.DeleteFunc(s.open, func(other *stream) bool { return other == st })
}

// progressDue reports whether to request progress on st now. One watch does that for all of them.
func (s *streams) progressDue(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(st.progress) < progressEvery/2 {
		return false
	}
	st.progress = now
	return true
}

// streamKey is the metadata key that tells streams apart: etcd's client opens one
// stream for each set of metadata. etcd ignores it.
const streamKey = "holdfast-stream"

// context returns the context to create a watch of the stream on. It is derived from
// the session's context, not from a caller's, whose metadata would open another
// stream.
func (st *stream) context(session context.Context) context.Context {
	ctx := clientv3.WithRequireLeader(session)
	return metadata.AppendToOutgoingContext(ctx, streamKey, strconv.FormatInt(st.number, 10))
}

// requestProgress makes etcd send something to all watches of the stream that ctx belongs to. The caller has a watch on
// it, which keeps it open.
func (st *stream) requestProgress(ctx context.Context, cli *clientv3.Client) {
	ctx, cancel := context.WithTimeout(ctx, armWait)
	defer cancel()
	_ = cli.RequestProgress(ctx) // a stream that stays silent is dropped
}
