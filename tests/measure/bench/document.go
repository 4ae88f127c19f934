package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// The program rewrites only the part of a document between these two markers.
const (
	generatedBegin = "<!-- begin: written by go run ./tests/measure/bench -->\n"
	generatedEnd   = "<!-- end: written by go run ./tests/measure/bench -->\n"
)

// rewrite replaces the text between the two markers of a file, and creates the file if it does not exist. It returns an
// error for a file without markers, so that a wrong path does not overwrite another document.
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
		return fmt.Errorf("%s lacks the markers %q and %q, between which the figures go", name, generatedBegin, generatedEnd)
	}
	return os.WriteFile(name, []byte(before+generatedBegin+text+generatedEnd+after), 0o644)
}
