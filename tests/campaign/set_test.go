//go:build linux

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

// add has a process read a set now, and write it when the function that it returns is called.
func (s *sets) add(t *testing.T, way int, token holdfast.Token, element int) (write func() (refused bool)) {
	t.Helper()
	access := Access{Way: way, Token: token, Element: element}
	var r Reply
	if err := s.Read(access, &r); err != nil || r.Refused {
		t.Fatal(err, r)
	}
	access.Read = r.Elements
	return func() bool {
		var r Reply
		if err := s.Write(access, &r); err != nil {
			t.Fatal(err)
		}
		return r.Refused
	}
}

func TestSetLosesWhatAStaleWriterReplacesUnlessItComparesTokens(t *testing.T) {
	for i, way := range ways {
		s := newSets()
		stale := s.add(t, i, 5, 1)
		s.add(t, i, 6, 2)()
		refused := stale()
		of := s.all[i]
		if refused != way.guarded || (of.lost() == 0) != way.guarded || (s.lostByGuarded() > 0) {
			t.Errorf("%s: refused %v, lost %d of %v", way.name, refused, of.lost(), of.added)
		}
	}
}

// A newer reader will replace what it has read, so an older one may not write any more.
func TestSetThatComparesTokensDoesSoWhenItIsRead(t *testing.T) {
	guarded := slices.IndexFunc(ways, func(w way) bool { return w.guarded })
	s := newSets()
	stale := s.add(t, guarded, 5, 1)
	newer := s.add(t, guarded, 6, 2)
	if !stale() || newer() || s.lostByGuarded() > 0 {
		t.Errorf("\n%v", s)
	}
}

// The short form of go run ./tests/campaign -sets.
func TestSetsUnderLocksOfProcessesThatAreStopped(t *testing.T) {
	t.Parallel() // most of it is sleep
	s, err := runSets(t.Context(), options{duration: time.Duration(rounds.Of(30, 6)) * time.Second, seed: 1, workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", s)
	for i, of := range s.all {
		if ways[i].guarded && of.lost() > 0 {
			t.Errorf("%s: %d elements are lost", ways[i].name, of.lost())
		}
	}
}
