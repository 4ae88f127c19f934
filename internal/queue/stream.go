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
	// armingPerStream is how many watches are created on one stream at a time
	// before another stream is used. etcd's client creates the watches of a
	// stream one after the other, a round trip each, and a waiter whose watch
	// does not stand yet is not told of a release.
	armingPerStream = 2

	// maxStreams bounds the streams of a session.
	maxStreams = 512

	// armWait is how long creating one watch may take. If it takes longer,
	// the stream is taken to be on a member that hangs.
	armWait = time.Second

	// askEvery is how often a stream with waiting watches is asked for a sign of
	// life, and silentAfter the time without one after which it is left. A watch
	// on a member that hangs says nothing, as does one that has nothing to say.
	askEvery    = 2 * time.Second
	silentAfter = 5 * time.Second
)

// streams are those that a session's watches are on, and no other's: a stream is
// created, and asked for a sign of life, as its session needs it. A session with few waiters
// has one, since a watch goes to the first stream that is not busy; etcd's
// client closes a stream with its last watch.
//
// A stream stays with one member, and with the token it was opened with. If that
// member hangs, or that token has expired or is older than a change of users and
// roles, no more watches can be created on it, for as long as one that was there
// before keeps it open. Then later watches go to other streams.
type streams struct {
	mu   sync.Mutex // protects what follows
	open []*stream
}

// stream is one of them.
type stream struct {
	number int64
	arming int       // watches that are being created on it; protected by streams.mu
	asked  time.Time // for a sign of life; protected by streams.mu
}

// pick returns the stream for a watch that is to be created, and how long that
// may take. The caller has to call armed or failed.
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

// armed notes that a watch was created on st.
func (s *streams) armed(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.arming--
}

// failed notes that a watch could not be created on st although etcd answers: no
// more are.
func (s *streams) failed(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.arming--
	s.removeLocked(st.number)
}

// due reports whether it is time to ask st for a sign of life. One of the watches
// on it asks, and etcd answers all of them.
func (s *streams) due(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(st.asked) < askEvery/2 {
		return false
	}
	st.asked = now
	return true
}

func (s *streams) removeLocked(number int64) {
	s.open = slices.DeleteFunc(s.open, func(st *stream) bool { return st.number == number })
}

// leave is failed for a watch that stood on the stream, which has gone silent.
func (s *streams) leave(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(number)
}

// streamKey makes a stream of a session's own. etcd's client has one for each set
// of metadata; etcd does not look at it.
const streamKey = "holdfast-stream"

// context is what to make a watch of the stream on. It comes of the session's
// context, not of a caller's, whose metadata would open another stream.
func (st *stream) context(session context.Context) context.Context {
	return metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(session), streamKey, strconv.FormatInt(st.number, 10))
}

// ask has etcd answer all watches of the stream that ctx is of. The caller has a
// watch on it, which keeps it open.
func (st *stream) ask(ctx context.Context, cli *clientv3.Client) {
	ctx, cancel := context.WithTimeout(ctx, armWait)
	defer cancel()
	_ = cli.RequestProgress(ctx) // without an answer the stream is left
}
