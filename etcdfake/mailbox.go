package etcdfake

import "sync"

// mailbox is an unbounded queue for one reader. Writers never block.
type mailbox[T any] struct {
	ready chan struct{} // holds a token if there may be an item

	mu    sync.Mutex // protects items
	items []T
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

func (m *mailbox[T]) put(item T) {
	m.mu.Lock()
	m.items = append(m.items, item)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

func (m *mailbox[T]) take() (item T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.items) == 0 {
		return item, false
	}
	item = m.items[0]
	m.items = m.items[1:]
	return item, true
}
