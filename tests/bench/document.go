package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// What this program writes stands in a document between these lines.
const (
	generatedBegin = "<!-- begin: written by go run ./tests/bench -->\n"
	generatedEnd   = "<!-- end: written by go run ./tests/bench -->\n"
)

// rewrite puts text between the two lines of a file, or makes the file if there
// is none. A file without the lines is somebody's, and is left alone.
func rewrite(name, text string) error {
	old, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = []byte(generatedBegin+generatedEnd), nil
	}
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(old), generatedBegin)
	_, after, ended := strings.Cut(rest, generatedEnd)
	if !begun || !ended {
		return fmt.Errorf("%s has no lines %q and %q to write between", name, generatedBegin, generatedEnd)
	}
	return os.WriteFile(name, []byte(before+generatedBegin+text+generatedEnd+after), 0o644)
}
