//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// readExplained reads a list of survivors: paragraphs of a reason, in words, and the keys of the mutants that survive
// for it, each on a line after "- ". Lines that begin with # are comments.
func readExplained(name string) (map[string]string, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	explained := make(map[string]string)
	var reason []string
	keys := false // the last line was a key
	for i, line := range strings.Split(string(text), "\n") {
		key, isKey := strings.CutPrefix(line, "- ")
		switch {
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
		case !isKey && keys:
			reason = []string{line}
		case !isKey:
			reason = append(reason, line)
		case len(reason) == 0:
			return nil, fmt.Errorf("%s:%d: a mutant without a reason", name, i+1)
		case explained[key] != "":
			return nil, fmt.Errorf("%s:%d: explained twice: %s", name, i+1, key)
		default:
			explained[key] = strings.Join(reason, " ")
		}
		keys = isKey || keys && strings.TrimSpace(line) == ""
	}
	return explained, nil
}
