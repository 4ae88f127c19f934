//go:build linux

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/tests/internal/compiled"
)

// A pkg is a package whose copy is instrumented.
type pkg struct {
	path  string // import path
	name  string // relative to the root of the repository
	files []*file
}

type file struct {
	path    string // absolute
	name    string // relative to the root of the repository
	source  []byte
	syntax  *ast.File
	fset    *token.FileSet
	mutated bool // places are looked for
	places  []*place
}

func run(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}

// A tree is the packages that are mutated, with what type-checking them needs.
type tree struct {
	root    string // directory of the repository
	runtime string // import path of package mutant in the instrumented copies
	pkgs    []*pkg
	last    int // the largest number of a mutant
	all     []compiled.Package
}

// load reads the packages at the paths in targets, relative to root, and numbers their mutants. The files of a target
// are all of its package's if it names none.
func load(root, runtime string, targets []target) (*tree, error) {
	paths := make([]string, len(targets))
	for i, t := range targets {
		paths[i] = "./" + t.pkg
	}
	what := []string{"-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles"}
	all, err := compiled.List(root, append(what, paths...)...)
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, runtime: runtime, all: all}
	for _, target := range targets {
		i := slices.IndexFunc(all, func(l compiled.Package) bool { return l.Dir == filepath.Join(root, target.pkg) })
		if i < 0 {
			return nil, fmt.Errorf("go list does not know the package in %s", target.pkg)
		}
		p, err := t.parse(all[i], target)
		if err != nil {
			return nil, err
		}
		t.pkgs = append(t.pkgs, p)
	}
	t.number()
	return t, nil
}

func (t *tree) parse(l compiled.Package, target target) (*pkg, error) {
	p := &pkg{path: l.ImportPath, name: target.pkg}
	fset := token.NewFileSet()
	syntax := make([]*ast.File, len(l.GoFiles))
	for i, name := range l.GoFiles {
		f := &file{path: filepath.Join(l.Dir, name), name: path.Join(target.pkg, name), fset: fset}
		f.mutated = len(target.files) == 0 || slices.Contains(target.files, name)
		var err error
		if f.source, err = os.ReadFile(f.path); err != nil {
			return nil, err
		}
		if f.syntax, err = parser.ParseFile(fset, f.path, f.source, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		p.files, syntax[i] = append(p.files, f), f.syntax
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object)}
	conf := types.Config{Importer: compiled.Importer(fset, t.all)}
	if _, err := conf.Check(p.path, fset, syntax, info); err != nil {
		return nil, err
	}
	for _, f := range p.files {
		if f.mutated {
			f.find(info)
		}
	}
	return p, nil
}

// number numbers the mutants of all packages. Those that nothing else distinguishes get a number in their change, too.
func (t *tree) number() {
	next, keys := 1, make(map[string]int)
	for _, p := range t.pkgs {
		for _, f := range p.files {
			for _, pl := range f.places {
				pl.id = next
				for i, change := range pl.changes {
					if change == "" {
						continue
					}
					m := &mutant{
						id: pl.id + i, pkg: p, file: f.name, line: pl.line, fn: pl.name(), source: f.line(pl.line), kind: pl.kind,
						change: change,
					}
					if keys[m.key()]++; keys[m.key()] > 1 {
						m.change = fmt.Sprintf("%s (%d)", change, keys[m.key()])
					}
					pl.mutants = append(pl.mutants, m)
				}
				next += len(pl.changes)
				t.last = next - 1
			}
		}
	}
}

func (t *tree) mutants() []*mutant {
	var all []*mutant
	for _, p := range t.pkgs {
		for _, f := range p.files {
			for _, pl := range f.places {
				all = append(all, pl.mutants...)
			}
		}
	}
	return all
}
