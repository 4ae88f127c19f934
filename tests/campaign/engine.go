//go:build linux

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// engineOf are the packages whose promises a campaign judges. The engine is these, and all that they need of this
// module.
var engineOf = []string{"./locker", "./election", "./shard", "./member", "./fencing/..."}

// engineFiles returns the files of the engine in the working tree, as paths from its root.
func engineFiles() (root string, files []string, err error) {
	if root, err = output("", "git", "rev-parse", "--show-toplevel"); err != nil {
		return "", nil, err
	}
	const format = `{{if and .Module (eq .Module.Path "github.com/holdfast-go/holdfast")}}` +
		`{{.Dir}}{{range .GoFiles}} {{.}}{{end}}{{end}}`
	listed, err := output(root, "go", append([]string{"list", "-deps", "-f", format}, engineOf...)...)
	if err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(listed) {
		of := strings.Fields(line)
		for _, name := range of[min(1, len(of)):] {
			file, err := filepath.Rel(root, filepath.Join(of[0], name))
			if err != nil {
				return "", nil, err
			}
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return "", nil, errors.New("go list names no file of the engine")
	}
	return root, files, nil
}

// An engine is that of the working tree, with which those of records are compared.
type engine struct {
	root string
	dirs []string // that have its files
}

func presentEngine() (*engine, error) {
	root, files, err := engineFiles()
	if err != nil {
		return nil, err
	}
	e := &engine{root: root}
	for _, f := range files {
		e.dirs = append(e.dirs, filepath.Dir(f))
	}
	slices.Sort(e.dirs)
	e.dirs = slices.Compact(e.dirs)
	return e, nil
}

// differs says how the engine at a commit differs from that at HEAD; "": it does not.
func (e *engine) differs(commit string) string {
	if strings.Contains(commit, ",") {
		return "was run with changes that no commit has"
	}
	args := []string{"diff", "--name-only", commit, "HEAD", "--"}
	for _, dir := range e.dirs {
		args = append(args, fmt.Sprintf(":(glob)%s/*.go", dir))
	}
	names, err := output(e.root, "git", append(args, ":(exclude)*_test.go")...)
	switch n := len(strings.Fields(names)); {
	case err != nil:
		return "is of a commit that this repository does not have"
	case n > 0:
		return fmt.Sprintf("is of an older engine: %d of its files have changed since", n)
	}
	return ""
}

// output returns what a command prints, in a directory.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args[:min(2, len(args))], " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}
