package queue

import (
	"testing"

	"google.golang.org/grpc/metadata"
)

// etcd's client opens a stream of watches for each set of metadata.
func TestEachReaderHasItsOwnStreamUntilItDropsIt(t *testing.T) {
	t.Parallel()
	var a, b followStream
	name := func(s *followStream) (string, int64) {
		ctx, number := s.context(t.Context())
		md, _ := metadata.FromOutgoingContext(ctx)
		return md.Get(streamOfReader)[0], number
	}
	first, number := name(&a)
	if again, _ := name(&a); again != first {
		t.Errorf("stream %s, then %s", first, again)
	}
	if other, _ := name(&b); other == first {
		t.Errorf("two readers on stream %s", first)
	}
	a.drop(number)
	second, _ := name(&a)
	if second == first {
		t.Errorf("still on stream %s", first)
	}
	a.drop(number) // by another watch that was on the first stream
	if third, _ := name(&a); third != second {
		t.Errorf("stream %s was dropped, but %s had failed", second, first)
	}
}
