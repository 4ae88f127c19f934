package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/tests/internal/compiled"
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
	// With -race, as they were compiled for the tests.
	what := []string{"-race", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles"}
	all, err := compiled.List(root, slices.AppendSeq(what, maps.Keys(dirs))...)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	imports := compiled.Importer(set, all) // reads each package once
	for name, replace := range replaced {
		changed := make(map[string]bool)
		for file := range replace {
			changed[filepath.Dir(file)] = true
		}
		for dir := range changed {
			if err := check(set, imports, all, dir, replace); err != nil {
				t.Errorf("%s: the code with the patch does not compile; make it anew: %v", name, err)
			}
		}
	}
}

// check type-checks the package in a directory with the files of replace in place of some of its own.
func check(
	set *token.FileSet, imports types.Importer, all []compiled.Package, dir string, replace map[string]string,
) error {
	i := slices.IndexFunc(all, func(p compiled.Package) bool { return p.Dir == dir })
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
