package sample

import (
	"syscall"
	"testing"
	"time"
)

func TestFull(t *testing.T) {
	for n, want := range map[int]bool{1: false, 2: false, 4: true} { // not at the limit
		if full(n) != want {
			t.Error(n)
		}
	}
}

func TestSame(t *testing.T) {
	if !same("a", "a") {
		t.Error("the same differ")
	}
}

func TestBoth(t *testing.T) {
	if both(true, true) != 1 || both(true, false) != 0 {
		t.Error("wrong")
	}
}

func TestAdd(t *testing.T) {
	var c counter
	if c.add(2) != nil || c.n != 2 || c.calls != 11 {
		t.Error(c)
	}
	if c.add(-1) == nil {
		t.Error(c)
	}
}

func TestPause(t *testing.T) {
	// Only to be read, as an etcd maps its file: it must not count as memory.
	mapped, err := syscall.Mmap(-1, 0, 10<<30, syscall.PROT_READ, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Munmap(mapped); err != nil {
		t.Fatal(err)
	}
	if pause(true) <= pause(false) || pause(false) > time.Minute {
		t.Error("wrong")
	}
}

func TestSpin(t *testing.T) {
	if spin(2) != 2 {
		t.Error("wrong")
	}
}
