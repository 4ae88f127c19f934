package session_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/session"
)

// outage keeps renewals from being answered until the session is suspended.
func (c *cluster) outage(t *testing.T, events recorder) {
	t.Helper()
	c.hang("LeaseKeepAlive")
	events.next(t, holdfast.Suspended)
	c.heal()
	events.next(t, holdfast.Connected)
}

// lose revokes the session's lease and waits for the next one.
func (c *cluster) lose(t *testing.T, sess *session.Session, events recorder) (lost clientv3.LeaseID) {
	t.Helper()
	lost = sess.Lease()
	c.Revoke(lost)
	events.next(t, holdfast.Lost)
	events.next(t, holdfast.Connected)
	synctest.Wait() // the watch of the next key stands
	return lost
}

// A subscriber that takes a minute for each event gets the same events in the same order, only later. Renewals do
// not wait for it.
func TestSlowSubscriberGetsEveryEventInOrder(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{CloseTimeout: 2 * time.Hour})
		quick, slow := newRecorder(), newRecorder()
		var all []session.Event
		sess.Subscribe(func(ev session.Event) { all = append(all, ev) }) // joined by Close
		sess.Subscribe(func(ev session.Event) { time.Sleep(time.Minute); slow.record(ev) })
		sess.Subscribe(quick.record)
		for range 10 {
			c.outage(t, quick)
			c.lose(t, sess, quick)
		}
		if err := sess.Check(); err != nil {
			t.Error(err)
		}
		if n := len(slow); n > 20 {
			t.Fatalf("the slow subscriber has got %d of 40 events: it is not slow", n)
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
				t.Errorf("event %d of the slow subscriber is %+v, of the others %+v", i, late, ev)
			}
		}
	})
}

func TestEveryTerminalEventArrivesHoweverManyWait(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		quick, blocked, release := newRecorder(), newRecorder(), make(chan struct{})
		sess.Subscribe(func(ev session.Event) { <-release; blocked.record(ev) })
		sess.Subscribe(quick.record)
		var want []clientv3.LeaseID
		for range 100 {
			want = append(want, c.lose(t, sess, quick))
		}
		closed := make(chan error)
		go func() { // received below
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			closed <- sess.Close(ctx)
		}()
		quick.next(t, holdfast.Closed)
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
			t.Errorf("%d losses, then %v; want %d, then closed", len(got), last.State, len(want))
		}
	})
}

func TestSubscriberThatPanicsGetsTheNextEvent(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		quick, panics := newRecorder(), newRecorder()
		sess.Subscribe(func(ev session.Event) { panics.record(ev); panic("a bug of the user's") })
		sess.Subscribe(quick.record)
		c.outage(t, quick)
		c.lose(t, sess, quick)
		for _, want := range []holdfast.State{holdfast.Suspended, holdfast.Connected, holdfast.Lost, holdfast.Connected} {
			panics.next(t, want)
		}
	})
}

// Invariant 11.
func TestCallbacksDelayOnlyThemselves(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		release := make(chan struct{})
		sess := c.open(t, session.Options{})
		good, blocked := newRecorder(), newRecorder()
		sess.Subscribe(func(session.Event) { panic("a bug of the user's") })
		sess.Subscribe(func(ev session.Event) { <-release; blocked.record(ev) })
		stop := sess.Subscribe(func(session.Event) { t.Error("called after cancel") })
		stop()
		sess.Subscribe(good.record)
		sess.Subscribe(nil)()
		for range 100 {
			c.outage(t, good)
		}
		c.lose(t, sess, good)
		close(release)
		synctest.Wait()
		var states []holdfast.State
		for len(blocked) > 0 {
			states = append(states, (<-blocked).State)
		}
		if n := len(states); n != 202 || states[n-2] != holdfast.Lost || states[n-1] != holdfast.Connected {
			t.Errorf("the blocked subscriber got %v", states)
		}
		if err := sess.Check(); err != nil {
			t.Error(err)
		}
	})
}

// The first line is written when etcd is away, and the watchdog has yet to tell the loss.
func TestLoggerThatBlocksDelaysNoLoss(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		unblock := make(chan string)
		sess := c.open(t, session.Options{Logger: slog.New(lineHandler(unblock)), StayLost: true})
		l := await(t, sess)
		c.link.BlackHole()
		trusted := sess.Remaining()
		select {
		case <-l.Context().Done():
		case <-time.After(trusted + time.Millisecond):
			t.Error("not told within the trusted time")
		}
		c.heal()
		for _, want := range []string{"session suspended", "session lost"} {
			if line := <-unblock; !strings.Contains(line, want) {
				t.Errorf("logged %q, want %q", line, want)
			}
		}
	})
}

func TestEachChangeOfStateIsOneLineInTheLog(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		var log bytes.Buffer
		noTime := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
		events := newRecorder()
		sess := c.open(t, session.Options{
			OnStateChange: events.record, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: noTime})),
		})
		old := names.Lease(sess.Lease())
		c.outage(t, events)
		c.lose(t, sess, events)
		next := names.Lease(sess.Lease())
		if err := sess.Close(t.Context()); err != nil {
			t.Error(err)
		}
		want := []string{
			`level=WARN msg="holdfast: session suspended" lease=` + old + " error=",
			`level=INFO msg="holdfast: session reconnected, nothing was lost" lease=` + old,
			`level=WARN msg="holdfast: session lost" lease=` + old + " cause=revoked since_last_renewal=",
			`level=INFO msg="holdfast: session has a new lease" lease=` + next,
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if !slices.EqualFunc(lines, want, strings.HasPrefix) {
			t.Errorf("logged:\n%s", log.String())
		}
		for _, unwanted := range []string{"acquire again", "{"} {
			if strings.Contains(log.String(), unwanted) {
				t.Errorf("the log has %q:\n%s", unwanted, log.String())
			}
		}
	})
}
