// Command saboteurs takes one rule after the other out of the code, and says whether a test notices.
//
//	go run ./tests/saboteurs                      # all
//	go run ./tests/saboteurs gate-not-compared    # one
//
// It runs in the root of the repository, and changes nothing there: the compiler reads changed copies. It exits with 1
// if one was not noticed.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() { os.Exit(command(".", os.Args[1:], os.Stdout)) }

// command sends the saboteurs with these names, or all.
func command(root string, names []string, out io.Writer) (code int) {
	for _, name := range names {
		if !slices.ContainsFunc(saboteurs, func(s saboteur) bool { return s.name == name }) {
			fmt.Fprintf(out, "saboteurs: there is none called %q\n", name)
			return 2
		}
	}
	for _, s := range saboteurs {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		took, err := s.send(root)
		switch {
		case errors.Is(err, errNotNoticed):
			code = 1
			fmt.Fprintf(out, "NOT NOTICED  %s: %s\n", s.name, s.rule)
		case err != nil:
			fmt.Fprintf(out, "saboteurs: %s: %v\n", s.name, err)
			return 2
		default:
			fmt.Fprintf(out, "%8.1f s  %s: go test %s -run '^%s'\n", took.Seconds(), s.name, s.dir, s.test)
		}
	}
	return code
}

// errNotNoticed is the error of a saboteur whose test passes.
var errNotNoticed = errors.New("the test passes without the rule")

// send runs the test on the changed code, and returns how long that took. Its error Is errNotNoticed, or says what is
// wrong with the patch.
func (s saboteur) send(root string) (time.Duration, error) {
	dir, err := os.MkdirTemp("", "saboteur-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	overlay, err := s.overlay(root, dir)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-timeout=5m", "-overlay", overlay, "-run", "^"+s.test,
		s.dir)
	cmd.Dir = root
	text, err := cmd.CombinedOutput()
	switch {
	case err == nil && bytes.Contains(text, []byte("no tests to run")):
		return 0, fmt.Errorf("there is no test %s in %s", s.test, s.dir)
	case err == nil:
		return 0, errNotNoticed
	case !bytes.Contains(text, []byte("--- FAIL: "+s.test)):
		return 0, fmt.Errorf("the test did not run: %w\n%s", err, text)
	}
	return time.Since(began), nil
}

// overlay applies the patch to copies in dir, and returns the file that tells the compiler of them.
func (s saboteur) overlay(root, dir string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	patch := filepath.Join(root, "tests", "saboteurs", "patches", s.name+".patch")
	text, err := os.ReadFile(patch)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		file, ok := strings.CutPrefix(strings.TrimSpace(line), "+++ b/")
		if !ok {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, source, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = to
	}
	apply := exec.Command("git", "apply", patch)
	apply.Dir = dir
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // dir is in no repository
	if said, err := apply.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the patch does not apply to the present code; make it anew: %w\n%s", err, said)
	}
	encoded, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, encoded, 0o600)
}
