package robustness

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
)

// A familyJob is the argument of runFamilyWorker.
type familyJob struct {
	ID         string
	Names      []string // of locks and semaphores; the limit of the last semaphore changes
	Endpoints  []string
	TTL        time.Duration
	Seed       uint64
	Goroutines int
}

// A familyEvent is a report of a familyWorker. All times are by sinceBoot, which all processes share.
type familyEvent struct {
	What string // "wants", "held", "ended", "failed"; "closed"; "cannot": it acquired nothing after all faults were healed
	Who  string // the owner of the entries: one call
	Kind int
	Err  string
	At   time.Duration // "wants": the call began; "held": it returned; "failed": it returned an error

	Parts []familyPart // "wants" and "held"

	// "held":
	Key             string
	Lease           clientv3.LeaseID
	Token, Acquired int64
	MinHold         time.Duration

	// "held" and "ended": when the first Check that returned nil returned, and when the last one was called. It was
	// believed to be held between them. Zero if there was none.
	First, Last time.Duration

	// "ended":
	Told       time.Duration // when Done was closed; zero if the hold was released
	Unlocked   time.Duration // when Unlock returned nil, or zero
	Downgraded bool
	Gap        time.Duration // the longest time between two Checks: this process did not run
}

type familyPart struct {
	Prefix string
	Reads  bool
}

// parts returns the queues that the call has entries in.
func (ev familyEvent) parts() (all []part) {
	for _, p := range ev.Parts {
		all = append(all, part{prefix: p.Prefix, reads: p.Reads})
	}
	return all
}

// text returns the text of an error, or "".
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func familyParts(parts []part) (all []familyPart) {
	for _, p := range parts {
		all = append(all, familyPart{p.prefix, p.reads})
	}
	return all
}

// sinceBoot is the same clock in all processes.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}
