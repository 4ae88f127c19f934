//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
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

// listed is the part of the output of "go list" that is used.
type listed struct {
	ImportPath, Dir, Export, ForTest string
	GoFiles, Deps                    []string
}

func goList(dir string, args ...string) ([]listed, error) {
	out, err := run(dir, "go", append([]string{"list"}, args...)...)
	if err != nil {
		return nil, err
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("the output of go list: %w", err)
		}
		all = append(all, p)
	}
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
	last    int               // the largest number of a mutant
	exports map[string]string // export data by import path
}

// load reads the packages at the paths in targets, relative to root, and numbers their mutants. The files of a target
// are all of its package's if it names none.
func load(root, runtime string, targets []target) (*tree, error) {
	paths := make([]string, len(targets))
	for i, t := range targets {
		paths[i] = "./" + t.pkg
	}
	what := []string{"-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles"}
	all, err := goList(root, append(what, paths...)...)
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, runtime: runtime, exports: make(map[string]string)}
	for _, l := range all {
		t.exports[l.ImportPath] = l.Export
	}
	for _, target := range targets {
		i := slices.IndexFunc(all, func(l listed) bool { return l.Dir == filepath.Join(root, target.pkg) })
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

func (t *tree) parse(l listed, target target) (*pkg, error) {
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
	conf := types.Config{Importer: t.importer(fset)}
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

func (t *tree) importer(fset *token.FileSet) types.ImporterFrom {
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		name := t.exports[path]
		if name == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(name)
	}).(types.ImporterFrom)
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
