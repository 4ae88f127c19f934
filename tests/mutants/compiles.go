package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
)

// dropWhatDoesNotCompile type-checks the instrumented copies of p and drops the places on lines with errors, until
// there are none.
func (t *tree) dropWhatDoesNotCompile(p *pkg) error {
	for {
		faults, err := t.check(p)
		if err != nil || len(faults) == 0 {
			return err
		}
		dropped := 0
		for _, fault := range faults {
			dropped += t.drop(p, fault)
		}
		if dropped == 0 {
			return fmt.Errorf("the instrumented copy of %s does not compile: %w", p.name, faults[0])
		}
		t.numberOf(p, 1)
	}
}

// check returns the type errors of the instrumented copies of p.
func (t *tree) check(p *pkg) ([]types.Error, error) {
	fset := token.NewFileSet()
	imports := t.importer(fset)
	runtime, err := t.checkRuntime(fset, imports)
	if err != nil {
		return nil, err
	}
	var syntax []*ast.File
	for _, f := range p.files {
		source := f.source
		if len(f.places) > 0 {
			source = f.instrumented(t.runtime)
		}
		s, err := parser.ParseFile(fset, f.path, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("instrumented copy of %s: %w", f.name, err)
		}
		syntax = append(syntax, s)
	}
	var faults []types.Error
	conf := types.Config{
		Importer: withRuntime{imports, t.runtime, runtime},
		Error:    func(err error) { faults = append(faults, err.(types.Error)) },
	}
	_, _ = conf.Check(p.path, fset, syntax, nil) // its error is the first of faults
	return faults, nil
}

// checkRuntime type-checks package mutant.
func (t *tree) checkRuntime(fset *token.FileSet, imports types.Importer) (*types.Package, error) {
	syntax, err := parser.ParseFile(fset, "mutant.go", runtimeSource, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	conf := types.Config{Importer: imports, IgnoreFuncBodies: true}
	return conf.Check(t.runtime, fset, []*ast.File{syntax}, nil)
}

// withRuntime knows one package more.
type withRuntime struct {
	types.ImporterFrom
	path    string
	runtime *types.Package
}

func (w withRuntime) ImportFrom(path, dir string, mode types.ImportMode) (*types.Package, error) {
	if path == w.path {
		return w.runtime, nil
	}
	return w.ImporterFrom.ImportFrom(path, dir, mode)
}

func (w withRuntime) Import(path string) (*types.Package, error) { return w.ImportFrom(path, "", 0) }

// drop removes the places on the line of an error, or, for a function that lacks a return, the returns in it. It
// returns how many it has removed.
func (t *tree) drop(p *pkg, fault types.Error) int {
	at := fault.Fset.Position(fault.Pos)
	for _, f := range p.files {
		if f.path != at.Filename {
			continue
		}
		before := len(f.places)
		gone := func(pl *place) bool { return pl.line == at.Line }
		if !slices.ContainsFunc(f.places, gone) {
			gone = func(pl *place) bool {
				return pl.returns && pl.fn != nil && f.fset.Position(pl.fn.Pos()).Line <= at.Line &&
					at.Line <= f.fset.Position(pl.fn.End()).Line
			}
		}
		f.places = slices.DeleteFunc(f.places, gone)
		if n := before - len(f.places); n > 0 {
			t.dropped = append(t.dropped, fmt.Sprintf("%s:%d: %d places: %s", f.name, at.Line, n, fault.Msg))
			return n
		}
	}
	return 0
}
