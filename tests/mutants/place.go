//go:build linux

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// A mutant is one change of one place.
type mutant struct {
	id     int // from 1, by file, line and kind
	pkg    *pkg
	file   string // relative to the root of the repository
	line   int
	fn     string // the function around it: run, or supervisor.run
	source string // the line, without what surrounds it
	kind   string
	change string // what is changed: "a < b → a <= b"
}

// The kinds of mutants.
const (
	comparisons = "comparisons" // == and !=, < and <= and the opposite
	conditions  = "conditions"  // true, false, && and ||
	statements  = "statements"  // dropped
	constants   = "constants"   // n+1 and n-1; 2*d and 0
)

// key names a mutant in the list of explained survivors. It does not change when the line moves.
func (m *mutant) key() string { return strings.Join([]string{m.file, m.fn, m.source, m.change}, " | ") }

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d: %s: %s\n\t%s", m.file, m.line, m.fn, m.change, m.source)
}

// A place is where an instrumented copy asks which mutant is on.
type place struct {
	line    int
	fn      *ast.FuncDecl // nil outside of functions
	kind    string
	changes []string // one for each of its mutants; empty where that is left out
	edits   func(id int) []edit

	id      int // of its first mutant
	mutants []*mutant
}

// An edit replaces a part of a file. Of several at one offset those that end something come first.
type edit struct {
	offset, length int
	text           string
	closes         bool
}

// wrap puts open before n and end behind it.
func (f *file) wrap(n ast.Node, open, end string) []edit {
	return []edit{
		{offset: f.offset(n.Pos()), text: open},
		{offset: f.offset(n.End()), text: end, closes: true},
	}
}

func (f *file) offset(p token.Pos) int { return f.fset.Position(p).Offset }

// text returns the source of n on one line.
func (f *file) text(n ast.Node) string {
	return strings.Join(strings.Fields(string(f.source[f.offset(n.Pos()):f.offset(n.End())])), " ")
}

// line returns a line of the file without what surrounds it.
func (f *file) line(n int) string {
	line := strings.Split(string(f.source), "\n")[n-1]
	return strings.Join(strings.Fields(line), " ")
}

// instrumented returns a copy of the file in which places ask for their mutants. Every line keeps its number.
func (f *file) instrumented(runtime string) []byte {
	edits := []edit{{
		offset: f.offset(f.syntax.Name.End()),
		text:   fmt.Sprintf("; import %s %q", runtimeName, runtime),
	}}
	var ends []edit
	for _, p := range f.places {
		for _, e := range p.edits(p.id) {
			if e.closes {
				ends = append(ends, e)
			} else {
				edits = append(edits, e)
			}
		}
	}
	// Places are listed outer before inner: what begins first ends last.
	slices.Reverse(ends)
	edits = append(ends, edits...)
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.offset, b.offset) })

	var out []byte
	done := 0
	for _, e := range edits {
		out = append(out, f.source[done:e.offset]...)
		out = append(out, e.text...)
		done = e.offset + e.length
	}
	return append(out, f.source[done:]...)
}
