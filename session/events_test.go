package session_test

import (
	"context"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/session"
)

// outage keeps renewals from being answered until the session is suspended.
func (f *fakeEtcd) outage(t *testing.T, told recorder) {
	t.Helper()
	f.set(func(f *fakeEtcd) { f.noRenew = true })
	told.next(t, holdfast.Suspended)
	f.set(func(f *fakeEtcd) { f.noRenew = false })
	told.next(t, holdfast.Connected)
}

// lose revokes the session's lease and waits for the next.
func (f *fakeEtcd) lose(t *testing.T, sess *session.Session, told recorder) (lost clientv3.LeaseID) {
	t.Helper()
	lost = sess.Lease()
	f.set(func(f *fakeEtcd) { delete(f.expiry, int64(lost)) })
	told.next(t, holdfast.Lost)
	told.next(t, holdfast.Connected)
	return lost
}

// Scenario 26. A consumer that takes a minute for each event is late, and that
// is all: it is told the same, in the same order, and the renewals do not wait.
func TestSubscriberThatIsSlowIsToldEverythingInOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{CloseTimeout: 2 * time.Hour})
		quick, slow := newRecorder(), newRecorder()
		var all []session.Event
		sess.Subscribe(func(ev session.Event) { all = append(all, ev) }) // joined by Close
		sess.Subscribe(func(ev session.Event) { time.Sleep(time.Minute); slow.tell(ev) })
		sess.Subscribe(quick.tell)
		for range 10 {
			f.outage(t, quick)
			f.lose(t, sess, quick)
		}
		if err := sess.Check(); err != nil {
			t.Error(err)
		}
		if n := len(slow); n > 20 {
			t.Fatalf("the slow one has been told %d of 40: it is not slow", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		if err := sess.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if n := len(all); n != 41 || all[n-1].State != holdfast.Closed {
			t.Fatalf("%d events, the last is %+v", n, all[n-1])
		}
		state := holdfast.Connected
		for i, ev := range all {
			if ev.Previous != state {
				t.Errorf("event %d leaves %v, the one before entered %v", i, ev.Previous, state)
			}
			state = ev.State
			if late := <-slow; late != ev {
				t.Errorf("the slow one was told %+v as number %d, the others %+v", late, i, ev)
			}
		}
	})
}

// Of what waits for a consumer that blocks, events that end nothing go first:
// no loss is dropped, however many there are, nor is the last.
func TestEveryTerminalEventArrivesHoweverManyWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{})
		told, blocked, release := newRecorder(), newRecorder(), make(chan struct{})
		sess.Subscribe(func(ev session.Event) { <-release; blocked.tell(ev) })
		sess.Subscribe(told.tell)
		var want []clientv3.LeaseID
		for range 100 {
			want = append(want, f.lose(t, sess, told))
		}
		closed := make(chan error)
		go func() { // received below
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			closed <- sess.Close(ctx)
		}()
		told.next(t, holdfast.Closed)
		close(release)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		var got []clientv3.LeaseID
		var last session.Event
		for len(blocked) > 0 {
			if last = <-blocked; last.State == holdfast.Lost {
				got = append(got, last.Lease)
			}
		}
		if !slices.Equal(got, want) || last.State != holdfast.Closed {
			t.Errorf("told of %d losses in a row, then %v; want %d, and closed", len(got), last.State, len(want))
		}
	})
}

// A consumer that panics is called again for the next event.
func TestSubscriberThatPanicsIsToldTheNextEvent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{})
		told, panics := newRecorder(), newRecorder()
		sess.Subscribe(func(ev session.Event) { panics.tell(ev); panic("a bug of the user's") })
		sess.Subscribe(told.tell)
		f.outage(t, told)
		f.lose(t, sess, told)
		for _, want := range []holdfast.State{holdfast.Suspended, holdfast.Connected, holdfast.Lost, holdfast.Connected} {
			panics.next(t, want)
		}
	})
}
