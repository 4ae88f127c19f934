package modelsearch

const blockSize = 256

// A fifo holds states in the order in which they were found. Its blocks are used again and never copied: a slice that
// grows to all states of a level would cost more than the search.
type fifo[S any] struct {
	blocks     []*[blockSize]S
	start, end int // of what it holds: indices into the first block and, counted on from there, into the last
	spare      *[blockSize]S
}

//go:norace
func (q *fifo[S]) push(s *S) {
	if q.end == len(q.blocks)*blockSize {
		if q.spare == nil {
			q.spare = new([blockSize]S)
		}
		q.blocks = append(q.blocks, q.spare)
		q.spare = nil
	}
	q.blocks[q.end/blockSize][q.end%blockSize] = *s
	q.end++
}

// pop returns the oldest state, which is valid until the next call.
//
//go:norace
func (q *fifo[S]) pop() *S {
	if q.start == blockSize {
		q.spare = q.blocks[0]
		q.blocks = q.blocks[1:]
		q.start, q.end = 0, q.end-blockSize
	}
	q.start++
	return &q.blocks[0][q.start-1]
}
