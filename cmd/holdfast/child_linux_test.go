package main

import (
	"context"
	"os"
	"runtime"
	"sync"
	"testing"
)

// The kernel kills a command together with the thread that has started it, so no other goroutine may get that thread: a
// goroutine that ends while it is locked to its thread takes the thread with it.
func TestCommandOutlivesTheThreadsOfOtherGoroutines(t *testing.T) {
	path, err := lookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		var others sync.WaitGroup
		for range 4 {
			others.Go(func() {
				for ctx.Err() == nil {
					endThread()
				}
			})
		}
		c, err := startChild(path, []string{"sleep", "1000"}, os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			endThread()
		}
		cancel()
		others.Wait()
		select {
		case status := <-c.ended:
			t.Fatalf("the command has ended with %d", codeOf(status))
		default:
		}
		c.kill()
		<-c.ended
	}
}

// endThread ends the thread that a goroutine runs on.
func endThread() {
	var thread sync.WaitGroup
	thread.Go(runtime.LockOSThread)
	thread.Wait()
}
