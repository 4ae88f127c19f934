//go:build linux

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/tests/internal/compiled"
)

//go:embed mutant/mutant.go
var runtimeSource []byte

// A binary is the compiled tests of one package, with the instrumented copies in them.
type binary struct {
	pkg  string // import path of the package
	dir  string // where its tests run
	path string
	also bool // asked for by -with: its tests come after those of the root module
}

// testPackages lists the packages of the root module, and those that the patterns in with name, whose tests link a
// mutated package.
func (t *tree) testPackages(with []string) ([]*binary, error) {
	var bins []*binary
	for i, patterns := range [][]string{{"./..."}, with} {
		if len(patterns) == 0 {
			continue
		}
		all, err := compiled.List(t.root, append([]string{"-test", "-json=ImportPath,Dir,ForTest,Deps"}, patterns...)...)
		if err != nil {
			return nil, err
		}
		for _, l := range all {
			of, isTest := strings.CutSuffix(l.ImportPath, ".test")
			if isTest && (i > 0 || t.linked(l.Deps)) {
				bins = append(bins, &binary{pkg: of, dir: l.Dir, also: i > 0})
			}
		}
	}
	return bins, nil
}

func (t *tree) linked(deps []string) bool {
	return slices.ContainsFunc(t.pkgs, func(p *pkg) bool {
		return slices.ContainsFunc(deps, func(dep string) bool {
			dep, _, _ = strings.Cut(dep, " [")
			return dep == p.path
		})
	})
}

// overlay writes the instrumented copies to dir, and a file for the option -overlay of go build, and returns its name.
func (t *tree) overlay(dir string) (string, error) {
	module := filepath.Join(t.root, "internal", "mutant", "mutant.go")
	replace := map[string]string{}
	write := func(original string, source []byte) error {
		replace[original] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		return os.WriteFile(replace[original], source, 0o600)
	}
	if err := write(module, runtimeSource); err != nil {
		return "", err
	}
	for _, p := range t.pkgs {
		for _, f := range p.files {
			if len(f.places) == 0 {
				continue
			}
			if err := write(f.path, f.instrumented(t.runtime)); err != nil {
				return "", err
			}
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

// build compiles the tests of all packages in bins into dir.
func (t *tree) build(bins []*binary, dir, overlay string) error {
	// go test names a binary after the last element of the path.
	for round := 0; ; round++ {
		names := make(map[string]*binary)
		for _, b := range bins {
			if name := path.Base(b.pkg); b.path == "" && names[name] == nil {
				names[name] = b
			}
		}
		if len(names) == 0 {
			return nil
		}
		into := filepath.Join(dir, fmt.Sprint("bin", round)) + "/"
		args := []string{"test", "-c", "-vet=off", "-overlay", overlay, "-o", into}
		for name, b := range names {
			b.path = into + name + ".test"
			args = append(args, b.pkg)
		}
		if _, err := run(t.root, "go", args...); err != nil {
			return err
		}
	}
}
