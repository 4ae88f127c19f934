package queue

import (
	"testing"
	"time"
)

// pickAll picks streams for n watches that are being created at the same time.
func pickAll(s *streams, n int) (picked []*stream, watches map[*stream]int, longest time.Duration) {
	watches = make(map[*stream]int)
	for range n {
		st, bound := s.pick()
		picked = append(picked, st)
		watches[st]++
		longest = max(longest, bound)
	}
	return picked, watches, longest
}

// etcd's client creates the watches of a stream one after the other.
func TestStreamsGrowWithTheWatchesThatAreBeingCreated(t *testing.T) {
	var s streams
	picked, watches, longest := pickAll(&s, 1000)
	if len(watches) != 1000/armingPerStream || longest != armingPerStream*armWait {
		t.Errorf("1000 watches are created on %d streams, the last within %v", len(watches), longest)
	}
	for _, st := range picked {
		s.armed(st)
	}
	// Created one after the other, any number of watches needs one stream.
	first := picked[0]
	for range 100 {
		st, _ := s.pick()
		if st != first {
			t.Errorf("a watch is on stream %d although the first is not busy", st.number)
		}
		s.armed(st)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	var s streams
	const n = 3 * armingPerStream * maxStreams
	_, watches, longest := pickAll(&s, n)
	if len(watches) != maxStreams {
		t.Errorf("%d watches are created on %d streams, want %d", n, len(watches), maxStreams)
	}
	for st, n := range watches {
		if n != 3*armingPerStream {
			t.Errorf("%d watches are created on stream %d, want them spread evenly", n, st.number)
		}
	}
	if longest != 3*armingPerStream*armWait {
		t.Errorf("the last watch of a stream has %v, want %v for each", longest, armWait)
	}
}

func TestStreamThatFailedIsNotUsedAgain(t *testing.T) {
	var s streams
	bad, _ := s.pick()
	s.failed(bad)
	if st, _ := s.pick(); st == bad || st.number == bad.number {
		t.Errorf("stream %d is used again", st.number)
	}
}
