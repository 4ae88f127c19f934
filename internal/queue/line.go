package queue

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// lines are the lines of a session. In a line goroutines of one session wait for the same name, in the order of their
// calls. Only its head has an entry in etcd, or is about to put it. The others cost the cluster nothing.
type lines struct {
	mu  sync.Mutex       // protects all, the fields of each line, and those of each caller from rev on
	all map[string]*line // by Entries; without the lines of callers alone
}

// line has a head until it is forgotten.
type line struct {
	lines   *lines
	entries string // its key in lines.all; empty for a caller alone
	head    *caller
	waiting list.List // of *caller; a list, so canceling takes as long in a line of any length
}

// caller is a call of Acquire in the line of one queue.
type caller struct {
	q       *Queue // as this caller named it
	request Request
	inSet   bool     // of a Set of several queues
	attempt *attempt // set before the turn, if the previous head has put the entry of this caller; otherwise nil

	// alone: the caller has a line of its own. If readers shared an entry, we'd have to count them, and late readers
	// would pass a waiting writer. A session holds several permits of a semaphore at a time. And goroutines in several
	// lines, for the queues of a Set, could wait for each other for ever.
	alone bool

	rev int64 // create revision of its entry, for those in the line behind it; 0: not known

	teller *teller // of the caller's place; a Set's callers share it; nil without OnWait

	line     *line
	turn     chan struct{} // buffered; receives once, when the caller becomes the head
	canceled bool          // its call gave up before it had the turn
	at       *list.Element // in line.waiting
}

// newCaller returns a caller who has joined no line.
func newCaller(q *Queue, r Request) *caller {
	c := &caller{q: q, request: r, alone: q.Reader || q.limit != 0}
	if r.OnWait != nil {
		c.teller = new(teller)
	}
	return c
}

// join puts a caller at the end of the line of its queue. If the line was empty, the caller is the head, and has its
// turn at once. With Request.Try, join does nothing and reports false unless the line was empty.
func (s *lines) join(c *caller) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.turn = make(chan struct{}, 1)
	c.line = &line{lines: s, head: c}
	if !c.alone { // others may have joined its line, or may join it
		entries := c.q.At.Entries
		ln := s.all[entries]
		if ln != nil && c.request.Try {
			return false
		}
		if ln != nil {
			c.line, c.at = ln, ln.waiting.PushBack(c)
			return true
		}
		if s.all == nil {
			s.all = make(map[string]*line)
		}
		c.line.entries = entries
		s.all[entries] = c.line
	}
	c.turn <- struct{}{}
	return true
}

// length returns how many are in the shared line of a queue.
func (s *lines) length(entries string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln := s.all[entries]
	if ln == nil {
		return 0
	}
	return 1 + ln.waiting.Len()
}

// cancel takes a caller out of the line. It reports false if the caller has become the head: then its turn is in the
// channel, and the caller must end it.
func (c *caller) cancel() bool {
	c.line.lines.mu.Lock()
	defer c.line.lines.mu.Unlock()
	if c.line.head == c {
		return false
	}
	c.canceled = true           // the head may have taken it off the list, and may be putting its entry right now
	c.line.waiting.Remove(c.at) // does nothing if it was taken off the list
	return true
}

// ahead returns the head of the line, the create revision of its entry, and how many are ahead of the caller, itself
// not among them. It does not count further than most. The head is nil if the line was forgotten.
func (c *caller) ahead(most int) (head *caller, rev int64, n int) {
	c.line.lines.mu.Lock()
	defer c.line.lines.mu.Unlock()
	if head = c.line.head; head == nil || head == c {
		return head, c.rev, 0
	}
	n = 1
	for el := c.at.Prev(); el != nil && n < most; el = el.Prev() {
		n++
	}
	return head, head.rev, n
}

// isLast reports whether no caller waits behind c, the head.
func (c *caller) isLast() bool {
	c.line.lines.mu.Lock()
	defer c.line.lines.mu.Unlock()
	return c.line.waiting.Len() == 0
}

// takeFirst takes the first caller behind the head off the list; nil if none waits. The caller passes the turn to it,
// or takes the next one.
func (c *caller) takeFirst() *caller {
	c.line.lines.mu.Lock()
	defer c.line.lines.mu.Unlock()
	ln := c.line
	first := ln.waiting.Front()
	if first == nil {
		return nil
	}
	return ln.waiting.Remove(first).(*caller)
}

// passTurn makes c the head. It reports false if c was canceled.
func (c *caller) passTurn() bool {
	c.line.lines.mu.Lock()
	defer c.line.lines.mu.Unlock()
	if c.canceled {
		return false
	}
	c.becomeHead()
	return true
}

// becomeHead gives c the turn. Its caller has locked the lines.
func (c *caller) becomeHead() {
	c.line.head = c
	c.turn <- struct{}{}
}

// next ends the turn of the head: the first waiting caller becomes the head. If none waits, the line is forgotten.
func (c *caller) next() {
	c.line.lines.mu.Lock()
	defer c.line.lines.mu.Unlock()
	ln := c.line
	if first := ln.waiting.Front(); first != nil {
		ln.waiting.Remove(first).(*caller).becomeHead() // not canceled: cancel takes its caller off the list
		return
	}
	ln.head = nil
	delete(ln.lines.all, ln.entries)
}

// awaitTurn waits until c is the head, and tells it its place meanwhile. After an error cancel must follow.
func (c *caller) awaitTurn(ctx context.Context) error {
	c.tell(c.place)
	select {
	case <-c.turn:
		return nil
	case <-ctx.Done():
		err := fmt.Errorf("%w; queued behind a goroutine of this session, perhaps this one", retry.ContextErr(ctx))
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.GiveUpWait)
		defer cancel()
		return &Error{Place: c.place(patience), Err: err}
	case <-c.q.host.Context.Done():
		return holdfast.ErrClosed
	}
}
