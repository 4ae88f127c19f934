package queue

import (
	"container/list"
	"sync"
)

// Lines are the lines of a session, for callers of type C. The zero value has none. In a line goroutines of one session
// wait for the same name, in the order of their calls. Only its head has an entry in etcd, or is about to put it. The
// others cost the cluster nothing.
type Lines[C any] struct {
	mu  sync.Mutex // protects all and the fields of each line and of each ticket in one
	all map[key[C]]*line[C]
}

// key tells lines apart.
type key[C any] struct {
	name  string
	alone *Ticket[C] // nil: the line that all others with this name share
}

// line has a head until it is forgotten.
type line[C any] struct {
	lines   *Lines[C]
	key     key[C]
	head    *Ticket[C]
	waiting list.List // of *Ticket[C]; a list, so that canceling takes as long in a line of any length
}

// Ticket is one caller's place in a line.
//
// A ticket that is alone has a line of its own. Three kinds are: readers, because readers that shared an entry would be
// counted, and late readers would pass a waiting writer; permits of a semaphore, because a session holds several at a
// time; and each queue of a Set, because goroutines that waited for each other in several lines could wait for ever.
type Ticket[C any] struct {
	Caller C
	Alone  bool

	line     *line[C]
	turn     chan struct{} // buffered; receives once, when the ticket becomes the head
	canceled bool          // the caller has gone
	returned bool          // the caller has returned although etcd has not confirmed that its entry is gone
	place    *list.Element // in line.waiting
}

// Join puts a ticket at the end of the line of that name. If the line was empty, the ticket is the head, and has its
// turn at once. With ifEmpty, Join does nothing and reports false unless the line was empty.
func (s *Lines[C]) Join(t *Ticket[C], name string, ifEmpty bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key[C]{name: name}
	if t.Alone {
		k.alone = t
	}
	ln := s.all[k]
	if ln != nil && ifEmpty {
		return false
	}
	t.turn = make(chan struct{}, 1)
	if ln != nil {
		t.line, t.place = ln, ln.waiting.PushBack(t)
		return true
	}
	if s.all == nil {
		s.all = make(map[key[C]]*line[C])
	}
	t.line = &line[C]{lines: s, key: k, head: t}
	s.all[k] = t.line
	t.turn <- struct{}{}
	return true
}

// Shared returns the head of the line that those share who have that name and are not alone, how many are in it, and
// whether all of them have returned. It reports false if there is no line.
func (s *Lines[C]) Shared(name string) (head C, length int, leftOver, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln := s.all[key[C]{name: name}]
	if ln == nil {
		return // there is none
	}
	return ln.head.Caller, 1 + ln.waiting.Len(), ln.leftOver(), true
}

// Heads returns the heads of all lines of that name, without the lines whose callers have all returned.
func (s *Lines[C]) Heads(name string) (heads []C) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, ln := range s.all {
		if k.name == name && !ln.leftOver() {
			heads = append(heads, ln.head.Caller)
		}
	}
	return heads
}

// leftOver reports whether all callers in the line have returned.
func (ln *line[C]) leftOver() bool { return ln.head.returned && ln.waiting.Len() == 0 }

// Turn receives once, when the ticket becomes the head.
func (t *Ticket[C]) Turn() <-chan struct{} { return t.turn }

// Cancel takes a caller that gives up out of the line. It reports false if the ticket has become the head: then its
// turn is in the channel, and the caller must end it.
func (t *Ticket[C]) Cancel() bool {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	if t.line.head == t {
		return false
	}
	t.canceled = true              // the head may have taken it off the list, and may be putting its entry right now
	t.line.waiting.Remove(t.place) // does nothing if it was taken off the list
	return true
}

// Line returns the head of the line and how many are ahead of the ticket, itself not among them. It does not count
// further than most. It reports false if the line was forgotten.
func (t *Ticket[C]) Line(most int) (head C, n int, exists bool) {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	switch t.line.head {
	case nil:
		return // it was forgotten
	case t:
		return t.Caller, 0, true
	}
	n = 1
	for el := t.place.Prev(); el != nil && n < most; el = el.Prev() {
		n++
	}
	return t.line.head.Caller, n, true
}

// IsLast reports whether no ticket waits behind the head, which t is.
func (t *Ticket[C]) IsLast() bool {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	return t.line.waiting.Len() == 0
}

// Returned records that the caller of the head, which t is, returns although etcd has not confirmed that its entry is
// gone.
func (t *Ticket[C]) Returned() {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	t.returned = true
}

// TakeFirst takes the first ticket off the list of those that wait behind the head; nil if none waits. The caller
// passes the turn to it, or takes the next one.
func (t *Ticket[C]) TakeFirst() *Ticket[C] {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	return t.line.takeFirst()
}

func (ln *line[C]) takeFirst() *Ticket[C] {
	front := ln.waiting.Front()
	if front == nil {
		return nil
	}
	return ln.waiting.Remove(front).(*Ticket[C])
}

// PassTurn makes t the head. It reports false if t was canceled.
func (t *Ticket[C]) PassTurn() bool {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	return t.passTurn()
}

func (t *Ticket[C]) passTurn() bool {
	if t.canceled {
		return false
	}
	t.line.head = t
	t.turn <- struct{}{}
	return true
}

// Next ends the turn of the head: the first that waits becomes the head. If none waits, the line is forgotten.
func (t *Ticket[C]) Next() {
	t.line.lines.mu.Lock()
	defer t.line.lines.mu.Unlock()
	ln := t.line
	if first := ln.takeFirst(); first != nil {
		first.passTurn() // it is not canceled: those are not in the list
		return
	}
	ln.head = nil
	delete(ln.lines.all, ln.key)
}
