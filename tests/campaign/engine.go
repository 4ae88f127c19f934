//go:build linux

package main

import (
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
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

// differs says how the engine at a commit differs from that at HEAD; "": it does not. Comments are no engine.
func (e *engine) differs(commit string) string {
	if strings.Contains(commit, ",") {
		return "was run with changes that no commit has"
	}
	args := []string{"diff", "--name-only", commit, "HEAD", "--"}
	for _, dir := range e.dirs {
		args = append(args, fmt.Sprintf(":(glob)%s/*.go", dir))
	}
	names, err := output(e.root, "git", append(args, ":(exclude)*_test.go")...)
	if err != nil {
		return "is of a commit that this repository does not have"
	}
	var changed []string
	for name := range strings.FieldsSeq(names) {
		// A file that one of the two lacks has no code there.
		then, _ := output(e.root, "git", "show", commit+":"+name)
		now, _ := output(e.root, "git", "show", "HEAD:"+name)
		if !slices.Equal(codeOf(then), codeOf(now)) {
			changed = append(changed, name)
		}
	}
	if len(changed) > 0 {
		return "is of an older engine; changed since: " + strings.Join(changed, ", ")
	}
	return ""
}

// codeOf returns the tokens of a file without its comments, but with those that instruct the compiler.
func codeOf(text string) []string {
	var tokens []string
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(text)), []byte(text), nil, scanner.ScanComments)
	for {
		_, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return tokens
		case kind != token.COMMENT || strings.HasPrefix(literal, "//go:"):
			tokens = append(tokens, kind.String()+literal)
		}
	}
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
