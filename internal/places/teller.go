package places

import (
	"github.com/holdfast-go/holdfast/internal/callback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/view"
)

// Teller calls the OnWait of a caller. The caller's goroutine tells, and no other.
type Teller struct {
	calls  callback.Queue
	name   string // of the function; "": it was not called yet
	joined func() // must be called when no call is being made any more: Close waits for it
}

// Tell calls fn with a place, unless a call is being made: then fn is called again afterwards, with the newest place.
// Without fn it does nothing.
func (t *Teller) Tell(host lease.Host, fn func(view.Place), place func() view.Place) {
	if fn == nil {
		return
	}
	if t.name == "" {
		t.name, t.joined = callback.Name(fn), host.Joining()
	}
	now := place()
	t.calls.Add(callback.Call{Callback: t.name, Log: host.Logger(), Latest: true, Run: func() { fn(now) }})
}

// End has no call begin any more. Close waits for the one that is being made.
func (t *Teller) End() {
	if t.name == "" {
		return
	}
	t.calls.Stop()
	idle := t.calls.Idle()
	select {
	case <-idle:
		t.joined()
	default:
		go func() { // joined by Close
			<-idle
			t.joined()
		}()
	}
}
