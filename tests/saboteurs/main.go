// Command saboteurs takes one rule after the other out of the code, and says whether a test notices.
//
//	go run ./tests/saboteurs                      # all
//	go run ./tests/saboteurs gate-not-compared    # one
//	go run ./tests/saboteurs -rotate 3            # three, which the commit decides
//
// It runs in the root of the repository, and changes nothing there, but README.md of this directory with -record: the
// compiler reads changed copies. It exits with 1 if one was not noticed, with 2 if one could not be sent.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() { os.Exit(command(".", os.Args[1:], os.Stdout)) }

// command sends the saboteurs that the arguments name, or all.
func command(root string, args []string, out io.Writer) (exit int) {
	flags := flag.NewFlagSet("saboteurs", flag.ContinueOnError)
	flags.SetOutput(out)
	few := flags.Int("rotate", 0, "send only so many, which the commit that is checked out decides")
	keep := flags.Bool("record", false, "write into README.md on which code each was noticed")
	show := flags.Bool("show", false, "print what the tests say")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	for _, name := range flags.Args() {
		if !slices.ContainsFunc(saboteurs, func(s saboteur) bool { return s.name == name }) {
			fmt.Fprintf(out, "saboteurs: there is none called %q\n", name)
			return 2
		}
	}
	head, err := git(root, "rev-parse", "HEAD")
	code, failed := codeOf(root)
	if err := errors.Join(err, failed); err != nil {
		fmt.Fprintf(out, "saboteurs: which commit is checked out: %v\n", err)
		return 2
	}
	sent := slices.DeleteFunc(slices.Clone(saboteurs), func(s saboteur) bool {
		return flags.NArg() > 0 && !slices.Contains(flags.Args(), s.name)
	})
	if *few > 0 {
		sent = draw(sent, *few, head)
	}
	for _, s := range sent {
		took, said, err := s.send(root)
		if *show {
			fmt.Fprintf(out, "%s\n", said)
		}
		switch {
		case errors.Is(err, errNotNoticed):
			exit = max(exit, 1)
			fmt.Fprintf(out, "NOT NOTICED  %s: %s\n", s.name, s.rule)
		case err != nil:
			exit = 2
			fmt.Fprintf(out, "saboteurs: %s: %v\n", s.name, err)
		default:
			test, _, _ := strings.Cut(s.test, "/")
			fmt.Fprintf(out, "noticed  %s, in %.1f s (%.1f s of processor time), by %s: %s\n  %s\n", s.name,
				took.real.Seconds(), took.cpu.Seconds(), test, failure(said, test), s.command())
			if *keep {
				if err := record(filepath.Join(root, readme), s, code); err != nil {
					fmt.Fprintf(out, "saboteurs: %v\n", err)
					return 2
				}
			}
		}
	}
	return exit
}

// git returns what git says of the repository.
func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = root
	text, err := cmd.Output()
	return strings.TrimSpace(string(text)), err
}

// codeOf returns the last commit that changed what the saboteurs change, and not only tests and documents.
func codeOf(root string) (string, error) {
	return git(root, "log", "-1", "--format=%h", "--abbrev=7", "--", ".", ":!tests", ":!docs", ":!*.md", ":!.ci")
}

// draw returns n of the saboteurs. The hash of a commit is as good as a random number: each gets its turn.
func draw(all []saboteur, n int, commit string) []saboteur {
	h := fnv.New64a()
	h.Write([]byte(commit))
	r := rand.New(rand.NewPCG(h.Sum64(), 0))
	r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:min(n, len(all))]
}

// errNotNoticed is the error of a saboteur whose test passes.
var errNotNoticed = errors.New("the test passes without the rule")

// duration is how long a saboteur took, compiling included.
type duration struct{ real, cpu time.Duration }

// command is the command that notices.
func (s saboteur) command() string {
	return strings.Join(append([]string{"go test", s.dir, "-run", s.test}, s.args...), " ")
}

// send runs the test on the changed code, and returns how long that took, and what the test said. Its error Is
// errNotNoticed, or says what is wrong with the patch.
func (s saboteur) send(root string) (took duration, said []byte, err error) {
	dir, err := os.MkdirTemp("", "saboteur-")
	if err != nil {
		return took, nil, err
	}
	defer os.RemoveAll(dir)
	overlay, err := s.overlay(root, dir)
	if err != nil {
		return took, nil, err
	}
	test, _, _ := strings.Cut(s.test, "/")
	began := time.Now()
	args := []string{"test", "-v", "-count=1", "-vet=off", "-ldflags=-s -w", "-timeout=2m", "-run", "^" + s.test, s.dir}
	cmd := exec.Command("go", append(args, s.args...)...)
	cmd.Dir = root
	// Tests that build a program have it changed, too. With CI set a test fails that lacks a program, and says no more.
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay, "CI=")
	said, err = cmd.CombinedOutput()
	took = duration{time.Since(began), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	signs := []string{"--- FAIL: " + test, "panic: ", "fatal error: ", "SIGSEGV: ", "ThreadSanitizer: "}
	failed := slices.ContainsFunc(signs, func(sign string) bool {
		return bytes.Contains(said, []byte("\n"+sign)) || bytes.HasPrefix(said, []byte(sign))
	})
	switch {
	case err == nil && bytes.Contains(said, []byte("no tests to run")):
		return took, said, fmt.Errorf("there is no test %s in %s", s.test, s.dir)
	case err == nil && bytes.Contains(said, []byte("--- SKIP: ")):
		return took, said, fmt.Errorf("the test was skipped:\n%s", said)
	case err == nil:
		return took, said, errNotNoticed
	case !failed:
		return took, said, fmt.Errorf("the test did not run: %w\n%s", err, said)
	case s.harmless && len(violation.FindAll(said, -1)) != len(refusedStep.FindAll(said, -1)):
		return took, said, fmt.Errorf("more is wrong than steps that a model does not have:\n%s", said)
	case s.harmless && !refusedStep.Match(said):
		return took, said, errNotNoticed
	}
	return took, said, nil
}

// What the campaign says of a promise that was broken, and of a step that a model refuses.
var (
	violation   = regexp.MustCompile(`seed \d+, round \d+: `)
	refusedStep = regexp.MustCompile(violation.String() + "the model refuses a step")
)

// overlay applies the patch to copies in dir, and returns the file that tells the compiler of them.
func (s saboteur) overlay(root, dir string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	patch := filepath.Join(root, "tests", "saboteurs", "patches", cmp.Or(s.patch, s.name)+".patch")
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
