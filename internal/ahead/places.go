package ahead

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/callback"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"

	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/view"
)

// Error is the error of a call that got no hold, with its place in the queue.
type Error struct {
	Place view.Place
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Without takes the place out of an error that may be an *Error.
func Without(err error) (view.Place, error) {
	if placed := (*Error)(nil); errors.As(err, &placed) {
		return placed.Place, placed.Err
	}
	return view.Place{}, err
}

// MaxCounted is how many keys Look reads to count the attempts in a queue. Beyond that it counts keys, so the two
// entries of a Downgradable count as two.
const MaxCounted = 64

// Ahead is what a reply of etcd says of the entries ahead.
type Ahead struct {
	Holder *mvccpb.KeyValue // the oldest, with its value; nil if that is not known
	Epoch  []*mvccpb.KeyValue
	Count  int64
	At     time.Time // zero: nothing is known
}

// Look reads who holds, and the entries created before rev; with 0 some of all. Of a semaphore it reads both of
// permits, and then both of turns.
func Look(s Scope, rev int64) []clientv3.Op {
	if s.At.Kind == holdfast.KindSemaphore {
		s.At.Kind = ""
		permits := Look(s, rev)
		s.At.Entries, _ = s.At.Turns()
		return append(permits, Look(s, rev)...)
	}
	count := s.Ahead(0, clientv3.WithLimit(MaxCounted))
	if rev > 0 {
		// The count in a reply does not regard the revision, so the keys are counted.
		count = s.Ahead(rev, clientv3.WithLimit(view.MaxAhead))
	}
	return []clientv3.Op{s.Oldest(), count}
}

// Read reads the replies to Look, which begin at response i. epoch is what a read of the fencing epoch has found.
func Read(s Scope, r requests.Reply, i int, rev int64, epoch []*mvccpb.KeyValue) Ahead {
	if s.At.Kind == holdfast.KindSemaphore {
		s.At.Kind = ""
		permits, turns := Read(s, r, i, rev, nil), Read(s, r, i+2, rev, nil)
		permits.Count += turns.Count
		older := func(t *mvccpb.KeyValue) bool {
			return permits.Holder == nil || t.CreateRevision < permits.Holder.CreateRevision
		}
		if t := turns.Holder; t != nil && t.Version > 1 && older(t) {
			permits.Holder = t
		}
		return permits
	}
	before := r.Range(i + 1)
	a := Ahead{Count: attempts(before.Kvs), Epoch: epoch, At: time.Now()}
	if rev == 0 {
		a.Count += before.Count - int64(len(before.Kvs))
	}
	oldest := Holder(r.Range(i).Kvs)
	if oldest != nil && (rev == 0 || oldest.CreateRevision < rev) {
		a.Holder = oldest
		if s.Reader && layout.IsReader(string(oldest.Key)) {
			a.Count++ // no conflicting entry: it is ahead because a writer waits in between
		}
	}
	return a
}

// attempts counts the attempts that some entries of one queue belong to. Those of a Downgradable have two.
func attempts(entries []*mvccpb.KeyValue) int64 {
	created := make(map[int64]struct{}, len(entries))
	for _, kv := range entries {
		created[kv.CreateRevision] = struct{}{}
	}
	return int64(len(created))
}

// Place returns what people see of a.
func (a Ahead) Place(s Scope) view.Place {
	p := view.Place{Ahead: int(min(a.Count, view.MaxAhead)), Seen: a.At}
	if a.Holder != nil {
		p.Holder = s.At.View(a.Holder)
		if s.At.Kind != holdfast.KindSemaphore { // a permit has no token
			p.Holder.Token, _ = layout.Token(a.Epoch, a.Holder.CreateRevision) // 0: not known
		}
	}
	return p
}

// Teller calls the OnWait of a caller. The caller's goroutine tells, and no other.
type Teller struct {
	calls  callback.Queue
	name   string // of the function; "": it was not called yet
	joined func() // must be called when no call is being made any more: Close waits for it
}

// readWithin bounds the read of a place for OnWait.
const readWithin = 5 * time.Second

// Tell calls fn with a place, unless a call is being made: then fn is called again afterwards, with the newest place.
// place is called right before, on the goroutine of fn, so that it delays no one else. Without fn Tell does nothing.
func (t *Teller) Tell(host lease.Host, fn func(view.Place), place func(ctx context.Context) view.Place) {
	if fn == nil {
		return
	}
	if t.name == "" {
		t.name, t.joined = callback.Name(fn), host.Joining()
	}
	t.calls.Add(callback.Call{Callback: t.name, Log: host.Logger(), Latest: true, Run: func() {
		ctx, cancel := context.WithTimeout(host.Context(), readWithin)
		defer cancel()
		fn(place(ctx))
	}})
}

// End lets no further call begin. Close waits for a call that is being made.
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
