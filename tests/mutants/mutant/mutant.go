//go:build linux

// Package mutant is compiled into instrumented copies of other packages. Each mutated place of a copy calls one of its
// functions, which does what the source says unless the place's mutant is on.
//
// The environment says which mutant is on (MUTANT), where to note what a run reaches (MUTANT_SEEN), and how many
// seconds of processor time a run may take (MUTANT_CPU).
package mutant

import (
	"cmp"
	"os"
	"strconv"
	"syscall"
	"time"
)

// What a byte of the file that MUTANT_SEEN names says of the mutant with that number.
const (
	Reached = 1 << iota // a run came to its place
	Differs             // with the mutant on, the place would have done something else
)

// maxMemory is for a mutant that appends for ever: it must not take the machine along. What counts is memory that can
// be written to. An etcd in the tests' process maps 10 GiB of its file to read them.
const maxMemory = 8 << 30

var (
	on   int    // the mutant that is on; 0 for none
	seen []byte // nil unless the run notes what it reaches
)

func init() {
	on, _ = strconv.Atoi(os.Getenv("MUTANT"))
	if seconds, _ := strconv.ParseUint(os.Getenv("MUTANT_CPU"), 10, 32); seconds > 0 {
		limit(syscall.RLIMIT_CPU, seconds)
		limit(syscall.RLIMIT_DATA, maxMemory)
	}
	if path := os.Getenv("MUTANT_SEEN"); path != "" {
		if err := openSeen(path); err != nil {
			panic("mutant: " + path + ": " + err.Error())
		}
	}
}

func limit(resource int, n uint64) {
	if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
		panic("mutant: setrlimit: " + err.Error())
	}
}

// openSeen maps the file, so that nothing that was noted is lost however the process ends.
func openSeen(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	seen, err = syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return err
}

func note(id int, differs bool) {
	if id >= len(seen) {
		return
	}
	seen[id] |= Reached
	if differs {
		seen[id] |= Differs
	}
}

// Keep reports whether to carry out a statement. Mutant id drops it.
func Keep(id int) bool {
	if seen != nil {
		note(id, true)
	}
	return on != id
}

// Not returns b; mutant id negates it.
func Not(id int, b bool) bool {
	if seen != nil {
		note(id, true)
	}
	return b != (on == id)
}

// True returns b; mutant id is true.
func True(id int, b bool) bool {
	if seen != nil {
		note(id, !b)
	}
	return b || on == id
}

// False returns b; mutant id is false.
func False(id int, b bool) bool {
	if seen != nil {
		note(id, b)
	}
	return b && on != id
}

// Less is a < b; mutant id is a <= b, mutant id+1 is a >= b.
func Less[T cmp.Ordered](id int, a, b T) bool { return compare(id, a, b, a < b, a <= b) }

// LessEqual is a <= b; mutant id is a < b, mutant id+1 is a > b.
func LessEqual[T cmp.Ordered](id int, a, b T) bool { return compare(id, a, b, a <= b, a < b) }

// Greater is a > b; mutant id is a >= b, mutant id+1 is a <= b.
func Greater[T cmp.Ordered](id int, a, b T) bool { return compare(id, a, b, a > b, a >= b) }

// GreaterEqual is a >= b; mutant id is a > b, mutant id+1 is a < b.
func GreaterEqual[T cmp.Ordered](id int, a, b T) bool { return compare(id, a, b, a >= b, a > b) }

func compare[T cmp.Ordered](id int, a, b T, result, otherBound bool) bool {
	if seen != nil {
		note(id, a == b)
		note(id+1, true)
	}
	switch on {
	case id:
		return otherBound
	case id + 1:
		return !result
	}
	return result
}

// Int returns n; mutant id is n+1, mutant id+1 is n-1.
func Int[T integer](id int, n T) T {
	if seen != nil {
		note(id, true)
		note(id+1, true)
	}
	switch on {
	case id:
		return n + 1
	case id + 1:
		return n - 1
	}
	return n
}

type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Few is Int for a small time.Duration, which is as a rule a bound or a factor.
func Few(id int, n time.Duration) time.Duration { return Int(id, n) }

// Duration returns d; mutant id is 2*d, mutant id+1 is 0.
func Duration(id int, d time.Duration) time.Duration {
	if seen != nil {
		note(id, true)
		note(id+1, true)
	}
	switch on {
	case id:
		return 2 * d
	case id + 1:
		return 0
	}
	return d
}
