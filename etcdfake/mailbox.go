package etcdfake

import "sync"

// mailbox is a queue without bounds for one reader, whose writers never block.
type mailbox[T any] struct {
	ready chan struct{} // holds one token when there may be something to take

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
