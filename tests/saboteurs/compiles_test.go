package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// A patch may apply to code that has become another since, with which it does not compile.
func TestEachSaboteurCompiles(t *testing.T) {
	replaced := make(map[string]map[string]string) // of each saboteur with a patch, the changed copies by file
	dirs := make(map[string]bool)
	for _, s := range saboteurs {
		if s.patch != "" {
			continue
		}
		overlay, err := s.overlay(root, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(overlay)
		if err != nil {
			t.Fatal(err)
		}
		var o struct{ Replace map[string]string }
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		replaced[s.name] = o.Replace
		for file := range o.Replace {
			dirs[filepath.Dir(file)] = true
		}
	}
	compiled := listCompiled(t, slices.Sorted(maps.Keys(dirs)))
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", compiled.export) // reads each package once
	for name, replace := range replaced {
		changed := make(map[string]bool)
		for file := range replace {
			changed[filepath.Dir(file)] = true
		}
		for dir := range changed {
			if err := compiled.check(set, imports, dir, replace); err != nil {
				t.Errorf("%s: the code with the patch does not compile; make it anew: %v", name, err)
			}
		}
	}
}

// compiledPackage is what go list says of a package.
type compiledPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

type compiledPackages []compiledPackage

// listCompiled returns the packages in some directories and all that they import, as they were compiled for the tests.
func listCompiled(t *testing.T, dirs []string) (all compiledPackages) {
	t.Helper()
	list := exec.Command("go", append([]string{
		"list", "-race", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles"}, dirs...)...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Start(); err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(out); ; {
		var p compiledPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := list.Wait(); err != nil {
		t.Fatal(err)
	}
	return all
}

// check type-checks the package in a directory with the files of replace in place of some of its own.
func (all compiledPackages) check(
	set *token.FileSet, imports types.Importer, dir string, replace map[string]string,
) error {
	i := slices.IndexFunc(all, func(p compiledPackage) bool { return p.Dir == dir })
	if i < 0 {
		return fmt.Errorf("go list knows no package in %s", dir)
	}
	var files []*ast.File
	for _, name := range all[i].GoFiles {
		file := filepath.Join(dir, name)
		if changed, ok := replace[file]; ok {
			file = changed
		}
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, parsed)
	}
	conf := types.Config{Importer: imports}
	_, err := conf.Check(all[i].ImportPath, set, files, nil)
	return err
}

// export opens what the compiler has written of a package for those that import it.
func (all compiledPackages) export(path string) (io.ReadCloser, error) {
	i := slices.IndexFunc(all, func(p compiledPackage) bool { return p.ImportPath == path })
	if i < 0 {
		return nil, fmt.Errorf("go list knows no package %s", path)
	}
	return os.Open(all[i].Export)
}
