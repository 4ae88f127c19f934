package watching

import (
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// pickAll picks streams for n watches that are being created at the same time.
func pickAll(s *Streams, n int) (picked []*Stream, watches map[*Stream]int, longest time.Duration) {
	watches = make(map[*Stream]int)
	for range n {
		st, bound := s.Pick()
		picked = append(picked, st)
		watches[st]++
		longest = max(longest, bound)
	}
	return picked, watches, longest
}

// etcd's client creates the watches of a stream one after the other.
func TestStreamsGrowWithTheWatchesThatAreBeingCreated(t *testing.T) {
	var s Streams
	picked, watches, longest := pickAll(&s, 1000)
	if len(watches) != 1000/armingPerStream || longest != armingPerStream*armWait {
		t.Errorf("1000 watches are created on %d streams, the last within %v", len(watches), longest)
	}
	for _, st := range picked {
		st.armed()
	}
	// Created one after the other, any number of watches needs one stream.
	first := picked[0]
	for range 100 {
		st, _ := s.Pick()
		if st != first {
			t.Errorf("a watch is on stream %d although the first is not busy", st.number)
		}
		st.armed()
	}
}

// etcd's client closes a stream with its last watch: so watches gather on the first streams.
func TestWatchUsesTheFirstStreamThatIsNotBusy(t *testing.T) {
	t.Parallel()
	var s Streams
	picked, _, _ := pickAll(&s, 2*armingPerStream)
	first, second := picked[0], picked[armingPerStream]
	first.armed()
	for range armingPerStream {
		second.armed()
	}
	if st, bound := s.Pick(); st != first || bound != armingPerStream*armWait {
		t.Errorf("it is on stream %d within %v, want the first one, which creates another one", st.number, bound)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	var s Streams
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
	var s Streams
	bad, _ := s.Pick()
	bad.armed()
	bad.drop()
	if st, _ := s.Pick(); st == bad || st.number == bad.number {
		t.Errorf("stream %d is used again", st.number)
	}
}

// etcd's client opens a stream of watches for each set of metadata.
func TestEachUserHasItsOwnStreamUntilItDropsIt(t *testing.T) {
	t.Parallel()
	var a, b Streams
	name := func(s *Streams) (string, *Stream) {
		st, _ := s.Pick()
		st.armed()
		md, _ := metadata.FromOutgoingContext(st.context(t.Context()))
		return md.Get(streamKey)[0], st
	}
	first, stream := name(&a)
	if again, _ := name(&a); again != first {
		t.Errorf("stream %s, then %s", first, again)
	}
	if other, _ := name(&b); other == first {
		t.Errorf("two users on stream %s", first)
	}
	stream.drop()
	second, _ := name(&a)
	if second == first {
		t.Errorf("still on stream %s", first)
	}
	stream.drop() // by another watch that was on the first stream
	if third, _ := name(&a); third != second {
		t.Errorf("stream %s was dropped, but %s had failed", second, first)
	}
}
