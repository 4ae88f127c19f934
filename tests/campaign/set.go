//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/tests/internal/family"
)

// setTTL is that of all leases in Jepsen's workload.
const setTTL = 2 * time.Second

// A way is one of adding to a set under a lock.
type way struct {
	name     string
	upstream bool // by etcd's concurrency
	asks     bool // its client, right before it writes, whether it still holds the lock
	guarded  bool // the set compares tokens
}

var ways = []way{
	{name: "etcd's concurrency", upstream: true},
	{name: "etcd's concurrency, Done asked before the write", upstream: true, asks: true},
	{name: "holdfast"},
	{name: "holdfast, Check asked before the write", asks: true},
	{name: "holdfast, and the set compares tokens", guarded: true},
}

// A set is in the memory of this process. Processes read it under a lock, and later write back what they have read with
// an element more.
type set struct {
	elements []int
	added    []int          // those whose writer was told that they are in
	token    holdfast.Token // the largest that was presented
	reader   int            // which process has read and not yet written; or -1
	refused  int            // reads and writes with a smaller token
	told     int            // writes that were not made, since the client said that it does not hold the lock any more
}

// lost returns how many elements that were added are not there.
func (s *set) lost() (n int) {
	for _, e := range s.added {
		if !slices.Contains(s.elements, e) {
			n++
		}
	}
	return n
}

// sets are one for each way. Processes call the exported methods.
type sets struct {
	mu  sync.Mutex // protects all
	all []*set
}

func newSets() *sets {
	s := &sets{}
	for range ways {
		s.all = append(s.all, &set{reader: -1})
	}
	return s
}

// An Access is what a process does with a set.
type Access struct {
	Way, Process int
	Token        holdfast.Token
	Read         []int // what it had read
	Element      int   // what it adds
	Told         bool  // it does not write, since it was told that it holds no more
}

// A Reply is what the set has, unless the token was too small.
type Reply struct {
	Elements []int
	Refused  bool
}

// admit reports whether the token of an access is not too small. It is called with mu held.
func (s *sets) admit(a Access, r *Reply) bool {
	of := s.all[a.Way]
	if r.Refused = ways[a.Way].guarded && a.Token < of.token; r.Refused {
		of.refused++
		return false
	}
	of.token = max(of.token, a.Token)
	return true
}

// Read returns the elements.
func (s *sets) Read(a Access, r *Reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.all[a.Way]; s.admit(a, r) {
		of.reader = a.Process
		r.Elements = slices.Clone(of.elements)
	}
	return nil
}

// Write replaces the elements by what was read, and one more.
func (s *sets) Write(a Access, r *Reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.all[a.Way]
	if of.reader == a.Process {
		of.reader = -1
	}
	if a.Told {
		of.told++
	} else if s.admit(a, r) {
		of.elements = append(slices.Clone(a.Read), a.Element)
		of.added = append(of.added, a.Element)
	}
	return nil
}

// someReader returns a process that has read a set and not yet written it, or -1.
func (s *sets) someReader(r *rand.Rand) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[r.IntN(len(s.all))].reader
}

// lostByGuarded returns how many elements sets have lost that compare tokens.
func (s *sets) lostByGuarded() (n int) {
	for i, of := range s.all {
		if ways[i].guarded {
			n += of.lost()
		}
	}
	return n
}

// String returns a table of what each way has lost.
func (s *sets) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%-50s %7s %7s %7s %7s\n", "", "added", "lost", "refused", "told")
	for i, of := range s.all {
		fmt.Fprintf(&b, "%-50s %7d %7d %7d %7d\n", ways[i].name, len(of.added), of.lost(), of.refused, of.told)
	}
	return b.String()
}

// commandSets runs the workload and prints what each way has lost. It returns the exit code.
func commandSets(ctx context.Context, o options, out, errOut io.Writer) (code int) {
	s, err := runSets(ctx, o)
	if err != nil {
		fmt.Fprintln(errOut, "campaign:", err)
		return unusable
	}
	fmt.Fprint(out, s)
	if s.lostByGuarded() > 0 {
		return violated
	}
	return fine
}

// runSets is Jepsen's workload for locks: processes add to sets in all ways, while those that have read are stopped.
func runSets(ctx context.Context, o options) (s *sets, err error) {
	dir, err := os.MkdirTemp("", "sets-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	srv, err := etcdtest.New(nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, srv.Close()) }()
	s = newSets()
	server := rpc.NewServer()
	if err := server.RegisterName("Sets", s); err != nil {
		return nil, err
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "sets"))
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	go func() { // ends when the socket is closed
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(conn) // ends with the process at its other end
		}
	}()
	var all []*child.Child[event]
	defer func() { err = child.KillAll(err, all...) }()
	for i := range o.workers {
		c, err := child.Start[event]("adder", job{ID: fmt.Sprint(i), Endpoints: srv.Endpoints(), Seed: o.seed, TTL: setTTL,
			Sets: socket.Addr().String()})
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if err := stopReaders(ctx, s, all, o); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, c := range all {
		if err := errors.Join(c.Tell("end"), c.Exited(ctx)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// stopReaders stops processes that have read a set, one after the other, for up to four TTLs, and returns when each set
// has an element.
func stopReaders(ctx context.Context, s *sets, all []*child.Child[event], o options) error {
	within, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	r := rand.New(rand.NewPCG(o.seed, 0))
	for within.Err() == nil {
		pauseFor(within, family.UpTo(r, 200*time.Millisecond))
		i := s.someReader(r)
		if i < 0 {
			continue
		}
		if err := all[i].Stop(ctx); err != nil {
			return err
		}
		pauseFor(within, setTTL/2+family.UpTo(r, 4*setTTL))
		if err := all[i].Continue(); err != nil {
			return err
		}
	}
	return eventually(ctx, "something is added in each way", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !slices.ContainsFunc(s.all, func(of *set) bool { return len(of.added) == 0 })
	})
}
