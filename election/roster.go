package election

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
)

// roster is what one session knows of its own terms of one election: which are
// held, and in which ended ones a function still runs. It is what keeps two
// functions of one election from running at once, and what health is read from.
type roster struct {
	all    *rosters
	prefix string
}

// rosters are all of a session.
type rosters struct {
	mu      sync.Mutex // protects what follows
	terms   map[string]map[*Term]*presence
	past    []pastTerm    // the last that have left terms
	changed chan struct{} // closed when a function has returned
}

// maxPast is how many ended terms a session remembers, for an observer that has
// not heard yet that they ended.
const maxPast = 16

type pastTerm struct {
	prefix string
	term   *Term
}

// presence is a term that has not ended, or whose function has not returned.
type presence struct {
	scoped  bool          // it is a term of RunWhileLeader or Run
	running bool          // a function runs in it
	told    bool          // and its context has ended,
	since   time.Duration // at this time of the session's clock
}

type rostersKey struct{}

func rosterOf(e *Election) roster {
	all := e.queue.Session().Base().Extension(rostersKey{}, func() any {
		return &rosters{terms: make(map[string]map[*Term]*presence), changed: make(chan struct{})}
	}).(*rosters)
	return roster{all: all, prefix: e.queue.Prefix()}
}

// add enters a term that was won, until it ends.
func (r roster) add(t *Term) {
	r.put(t, presence{})
	over, cancel := t.hold.Context(context.Background(), false)
	context.AfterFunc(over, func() {
		cancel()
		r.ended(t)
	})
}

func (r roster) put(t *Term, p presence) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if r.all.terms[r.prefix] == nil {
		r.all.terms[r.prefix] = make(map[*Term]*presence)
	}
	r.all.terms[r.prefix][t] = &p
}

func (r roster) ended(t *Term) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if p := r.all.terms[r.prefix][t]; p != nil && !p.running {
		r.removeLocked(t)
	}
}

func (r roster) removeLocked(t *Term) {
	r.all.past = append(r.all.past[max(0, len(r.all.past)-maxPast+1):], pastTerm{r.prefix, t}) // readers keep the slice
	delete(r.all.terms[r.prefix], t)
	if len(r.all.terms[r.prefix]) == 0 {
		delete(r.all.terms, r.prefix)
	}
}

// enter notes that a function runs in t; left, that it has returned.
func (r roster) enter(t *Term) {
	r.put(t, presence{scoped: true, running: true}) // also if it has ended already
}

func (r roster) left(t *Term) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	p := r.all.terms[r.prefix][t]
	p.running = false
	select {
	case <-t.hold.Done():
		r.removeLocked(t)
	default: // ended will
	}
	close(r.all.changed)
	r.all.changed = make(chan struct{})
}

// scoped reports whether t is a term of RunWhileLeader or Run.
func (r roster) scoped(t *Term) bool {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	p := r.all.terms[r.prefix][t]
	return p != nil && p.scoped
}

// toldToStop notes when the function in t was told.
func (r roster) toldToStop(t *Term, now time.Duration) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if p := r.all.terms[r.prefix][t]; p != nil {
		p.told, p.since = true, now
	}
}

// termAt returns the own term with the create revision of that token, held or
// ended not long ago; nil: none is known.
func (r roster) termAt(token fencing.Token) *Term {
	terms, _ := r.present() // before past: that is the way a term goes
	for t := range terms {
		if t.Token().Revision() == token.Revision() {
			return t
		}
	}
	for _, p := range r.all.pastTerms() {
		if p.prefix == r.prefix && p.term.Token().Revision() == token.Revision() {
			return p.term
		}
	}
	return nil
}

func (rs *rosters) pastTerms() []pastTerm {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.past
}

// present returns a copy of what is known, to be judged without the lock, and
// a channel that is closed when a function has returned.
func (r roster) present() (map[*Term]presence, <-chan struct{}) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	terms := make(map[*Term]presence, len(r.all.terms[r.prefix]))
	for t, p := range r.all.terms[r.prefix] {
		terms[t] = *p
	}
	return terms, r.all.changed
}

// lingering returns a term that has ended while its function still runs. A
// term that follows it on the same session can be won only after Check says
// so of the old one; hence nobody who has won can overlook it here.
func (r roster) lingering() (*Term, <-chan struct{}) {
	terms, changed := r.present()
	for t, p := range terms {
		if p.running && !t.hold.Live() {
			return t, changed
		}
	}
	return nil, changed
}

// cleared waits until no function of an ended term runs any more.
func (r roster) cleared(ctx context.Context, sess *session.Session) error {
	for {
		t, changed := r.lingering()
		if t == nil {
			return nil
		}
		for h := range fencing.Holders(ctx) {
			if h == fencing.Holder(t) {
				return holdfast.ErrReentrant // it would wait for itself
			}
		}
		select {
		case <-changed:
		case <-sess.Base().Context().Done():
			return holdfast.ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("%w: %w (token %v)", backoff.ContextErr(ctx), ErrNotDrained, t.Token())
		}
	}
}
