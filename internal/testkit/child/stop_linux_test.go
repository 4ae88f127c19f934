package child_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// threads returns the states of a process's threads, a letter each; T is stopped.
func threads(t *testing.T, pid int) (states string) {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		states += rest[:1]
	}
	return states
}

func TestStopStopsAllThreadsUntilContinue(t *testing.T) {
	t.Parallel()
	busy, c := start(t, job{Do: "spin"}), start(t, job{Do: "echo"})
	if _, err := busy.Await(deadline(t), "spins"); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := busy.Stop(deadline(t)); err != nil {
			t.Fatal(err)
		}
		if states := threads(t, busy.PID()); states == "" || strings.Trim(states, "T") != "" {
			t.Fatalf("stop %d: its threads have the states %q, want only T", i+1, states)
		}
		if err := busy.Continue(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Stop(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if err := c.Tell("a message while it is stopped"); err != nil {
		t.Error(err)
	}
	if err := c.Continue(); err != nil {
		t.Error(err)
	}
	if _, err := c.Await(deadline(t), "echo"); err != nil {
		t.Error(err)
	}
}

func TestStoppedChildCanBeKilled(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "echo"})
	if err := c.Stop(deadline(t)); err != nil {
		t.Fatal(err)
	}
	c.Kill()
	if err := c.Stop(deadline(t)); err == nil {
		t.Error("Stop of a child that has ended succeeded")
	}
	if err := c.Tell("nothing"); err == nil {
		t.Error("Tell to a child that has ended succeeded")
	}
}
