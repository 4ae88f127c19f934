package callback_test

import (
	"bytes"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/callback"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// queue is a Queue whose first call blocks until release is closed.
type queue struct {
	callback.Calls
	release chan struct{}
	made    []string // by the queue's goroutine; read it after Idle
}

func blocked(t *testing.T) *queue {
	q := &queue{release: make(chan struct{})}
	began := make(chan struct{})
	q.Add(callback.Call{Callback: "first", Run: func() {
		close(began)
		<-q.release
		q.made = append(q.made, "first")
	}})
	select {
	case <-began:
	case <-t.Context().Done():
	}
	return q
}

func (q *queue) add(what string, c callback.Call) {
	c.Callback, c.Run = what, func() { q.made = append(q.made, what) }
	q.Add(c)
}

func (q *queue) wants(t *testing.T, want ...string) {
	t.Helper()
	close(q.release)
	<-q.Idle()
	if !slices.Equal(q.made, append([]string{"first"}, want...)) {
		t.Errorf("made %q", q.made)
	}
}

func TestCallsAreMadeOneAtATimeInOrder(t *testing.T) {
	q := blocked(t)
	q.add("b", callback.Call{})
	q.add("c", callback.Call{})
	q.wants(t, "b", "c")
}

func TestLatestCallReplacesTheOneBeforeIt(t *testing.T) {
	q := blocked(t)
	q.add("a", callback.Call{Latest: true})
	q.add("b", callback.Call{Latest: true})
	q.add("c", callback.Call{})
	q.add("d", callback.Call{Latest: true})
	q.wants(t, "b", "c", "d")
}

func TestPanicIsLoggedAndTheNextCallIsMade(t *testing.T) {
	var log bytes.Buffer
	q := blocked(t)
	q.Add(callback.Call{
		Callback: "OnLoss", Log: slog.New(slog.NewTextHandler(&log, nil)), Run: func() { panic("boom") },
	})
	q.add("next", callback.Call{})
	q.wants(t, "next")
	for _, want := range []string{"callback=OnLoss", "panic=boom", "calls_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, log.String())
		}
	}
}

// A call of t.FailNow in a callback does that.
func TestCallThatEndsItsGoroutineDropsNoOther(t *testing.T) {
	q := blocked(t)
	q.Add(callback.Call{Run: runtime.Goexit})
	q.add("next", callback.Call{})
	q.Add(callback.Call{Run: runtime.Goexit})
	q.wants(t, "next")
	if q.Stop(); !q.Ended() {
		t.Error("not ended")
	}
}

func TestStopDropsWhatIsPending(t *testing.T) {
	q := blocked(t)
	q.add("a", callback.Call{})
	q.Stop()
	q.add("b", callback.Call{})
	if q.Ended() {
		t.Error("ended while a call is being made")
	}
	q.wants(t)
	if !q.Ended() {
		t.Error("not ended")
	}
}

func TestNameHasTheFunctionAndItsPlace(t *testing.T) {
	name := callback.Name(TestNameHasTheFunctionAndItsPlace)
	if !strings.Contains(name, "TestNameHasTheFunctionAndItsPlace (") || !strings.Contains(name, "calls_test.go:") {
		t.Error(name)
	}
}
