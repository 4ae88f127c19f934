package fencetest

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

// patience is how long a newer writer may wait for a paused one before that goes on. No verdict depends on it: a guard
// that needs longer to admit the newer writer is only tested less.
const patience = 50 * time.Millisecond

// An older writer is paused after its comparison, and a newer one comes. Either the newer one waits, or the older one
// fails when it goes on.
func pausedWriter(t *trial) {
	for _, older := range []holdfast.Token{5, 17} { // without a mark, and with one
		if !t.pause(older, older+2) {
			t.skipped = "the guard has no moment between comparison and effect"
			return
		}
	}
}

func (t *trial) pause(older, newer holdfast.Token) (paused bool) {
	inside, goOn := make(chan struct{}), make(chan struct{})
	late, next := make(chan error, 1), make(chan error, 1)
	var once sync.Once
	go func() { // joined by the receive from late
		late <- t.Write(t.ctx, t.resource, claim(older), older.String(), func() error {
			once.Do(func() { close(inside) })
			<-goOn
			return nil
		})
	}()
	select {
	case <-inside:
	case err := <-late:
		if err != nil {
			t.errorf("token %v should be admitted, but the error is: %w", older, err)
		}
		return false
	}
	go func() { next <- t.newer(newer) }() // joined by one of the receives from next
	var err error
	overtaken := false
	select {
	case err = <-next:
		overtaken = err == nil
		close(goOn)
	case <-time.After(patience):
		close(goOn)
		err = <-next
	}
	if lateErr := <-late; lateErr == nil && overtaken {
		t.errorf("token %v was paused between comparison and effect, %v wrote, and %v was acknowledged then: "+
			"raise the mark with the effect, or hold the resource until the effect is over", older, newer, older)
	}
	if err != nil { // it may have given up, as while a database is locked
		t.admit(t.newer, newer)
	}
	t.expect(newer.String())
	t.refuse(t.write, older)
	return true
}

// manyWriters has writers with new, equal and stale tokens write at once, by both ways, and reads in between: what is
// read never goes back, and no acknowledged write is missing.
func manyWriters(t *trial) {
	var mu sync.Mutex // protects acknowledged and the errors of the trial
	var acknowledged int64
	err := race(8, 15, func(client int, token int64) error {
		mu.Lock()
		least := acknowledged
		mu.Unlock()
		write := t.Write
		if client%2 == 1 {
			write = t.Other
		}
		err := write(t.ctx, t.resource, claim(holdfast.Token(token)), fmt.Sprint(token), nothing)
		data, readErr := t.Read(t.ctx, t.resource)
		found, _ := strconv.ParseInt(data, 10, 64) // 0 if there is no data
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			least = max(least, token)
			acknowledged = max(acknowledged, token)
		}
		switch {
		case readErr != nil:
			t.errorf("Guard.Read failed: %w", readErr)
		case found < least:
			t.errorf("token %d was acknowledged, and then the data were of %q", least, data)
		}
		return err
	}).err()
	if err != nil {
		t.errorf("%w", err)
	}
	if data := t.read(); err == nil && data != fmt.Sprint(acknowledged) {
		t.errorf("the largest token that was acknowledged is %d, and the data are of %q", acknowledged, data)
	}
}
