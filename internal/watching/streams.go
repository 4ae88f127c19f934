package watching

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// armingPerStream is how many watches may be in creation on one stream before another stream is used. etcd's client
	// creates the watches of a stream one after the other, a round trip each, and a waiter hears of no release before
	// that.
	armingPerStream = 2

	// maxStreams bounds the streams of a session.
	maxStreams = 512

	// armWait is how long the creation of one watch may take. If it takes longer, the member of the stream probably
	// hangs.
	armWait = time.Second
)

// Streams are streams of watches. The zero value has none.
//
// A stream stays with one member, and with the auth token of its opening. If the member hangs, or the token expires or
// is older than a change of roles, the stream creates no further watch, while older watches may keep it open. Later
// watches then use another stream.
type Streams struct {
	mu   sync.Mutex // protects what follows
	open []*Stream
}

// Stream is a stream for one watch or several.
type Stream struct {
	of     *Streams
	number int64
	turn   chan struct{} // full while a watch is being created, even if its caller has given up
	arming int           // watches in creation; protected by Streams.mu
}

// NewStream returns a stream without other watches. It goes to the next member.
func NewStream() *Stream {
	st, _ := new(Streams).Pick()
	return st
}

// Pick returns the stream for a new watch, and how long its creation may take. The caller must arm it.
func (s *Streams) Pick() (*Stream, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var least *Stream
	// The first stream that is not busy, so watches gather on the first ones, and a session with few waiters has one
	// stream: etcd's client closes a stream with its last watch.
	for _, st := range s.open {
		if least == nil || st.arming < least.arming {
			least = st
		}
		if least.arming < armingPerStream {
			break
		}
	}
	if least == nil || least.arming >= armingPerStream && len(s.open) < maxStreams {
		least = &Stream{of: s, number: lastStream.Add(1), turn: make(chan struct{}, 1)}
		s.open = append(s.open, least)
	}
	least.arming++
	return least, time.Duration(least.arming) * armWait
}

// lastStream numbers the streams of the program.
var lastStream atomic.Int64

// armed records the end of a creation on st.
func (st *Stream) armed() {
	st.of.mu.Lock()
	defer st.of.mu.Unlock()
	st.arming--
}

// drop makes later watches use other streams: st is silent, or creates no watch, although etcd answers.
func (st *Stream) drop() {
	st.of.mu.Lock()
	defer st.of.mu.Unlock()
	st.of.open = slices.DeleteFunc(st.of.open, func(other *Stream) bool { return other == st })
}
