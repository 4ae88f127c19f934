//go:build unix

// Package mixedfleet tests that the last release and the present code share locks and elections: while a service is
// updated, both run on the same etcd. The last release is built from its sources, as its own program.
package mixedfleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/tests/compat/mixedfleet/worker"
)

// lastRelease is a version such as v0.1.0, or a git revision. It is set at each release, and until the first one is the
// first commit whose sessions write the present format. If the worker needs an API that the release does not have,
// testdata/RELEASE has a worker that does not.
const lastRelease = "c8d655aeaf60ebbe9c9b5beb9c8dbf699829b9f0"

var release = flag.String("mixedfleet.release", lastRelease, "version or git revision to mix with the present code")

const (
	module = "github.com/holdfast-go/holdfast"
	root   = "../../.." // of this repository
)

func TestMain(m *testing.M) {
	child.Main(worker.Work)
	leak.Main(m, func() {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir)
		}
	})
}

// built is the worker of the last release, which all tests share.
var built struct {
	once    sync.Once
	dir     string // to be removed
	program string
	warning string
	err     error
}

// noHistory is said where a clone lacks the commit that stands for the last release before there is one.
const noHistory = "WARNING: this clone lacks commit %.12s, so the present code is mixed with itself; run: git fetch " +
	"--unshallow"

// oldWorker returns the program of the last release's worker, which it builds at the first call. If it cannot, the test
// fails rather than being skipped: a fleet that is not mixed tests nothing.
func oldWorker(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "mixedfleet-"); built.err == nil {
			built.program, built.err = buildOld(built.dir, *release)
		}
	})
	if built.err != nil {
		t.Fatalf("build the worker of %s: %v", *release, built.err)
	}
	if built.warning != "" {
		t.Log(built.warning)
	}
	return built.program
}

// buildOld gets the sources of a release, adds the worker to them, and builds it with the versions that the release's
// go.mod names.
func buildOld(dir, release string) (program string, err error) {
	tree := filepath.Join(dir, "tree")
	err = sources(tree, release)
	if errors.Is(err, errUnknown) && release == lastRelease {
		built.warning = fmt.Sprintf(noHistory, release)
		fmt.Fprintln(os.Stderr, built.warning)
		err = presentSources(tree)
	}
	if err != nil {
		return "", err
	}
	work := "worker"
	if own := filepath.Join("testdata", release); exists(own) {
		work = own // the release's API is another than the present one
	}
	main := filepath.Join(tree, "internal", "mixedfleet")
	for to, from := range map[string]string{
		filepath.Join(main, "worker"): work,
		// The child's side of the protocol is the present one, to which the parent talks.
		filepath.Join(tree, "internal", "testkit", "child"): filepath.Join(root, "internal", "testkit", "child"),
	} {
		if err := copyGoFiles(to, from); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(filepath.Join(main, "main.go"), []byte(mainFile), 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "old")
	// Without -trimpath: what the release imports has been compiled for others, and only its own packages are compiled.
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./internal/mixedfleet")
	build.Dir, build.Env = tree, append(os.Environ(), "GOWORK=off",
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -buildvcs=false")
	_, err = output(build)
	return program, err
}

// mainFile is the main package of the last release's worker.
const mainFile = `package main

import (
	"` + module + `/internal/testkit/child"
	"` + module + `/internal/mixedfleet/worker"
)

func main() { child.Main(worker.Work) }
`

var errUnknown = errors.New("git does not know it; if this is a shallow clone, run: git fetch --unshallow")

var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+`)

// sources puts the root module of a release into a new directory. It comes from git, or, if git does not know the
// release and it is a version, from the module proxy.
func sources(dir, release string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	_, err := output(exec.Command("git", "-C", root, "rev-parse", "--verify", "--quiet", release+"^{commit}"))
	if err == nil {
		archive, err := output(exec.Command("git", "-C", root, "archive", "--format=tar", release))
		if err != nil {
			return err
		}
		extract := exec.Command("tar", "-x", "-C", dir)
		extract.Stdin = bytes.NewReader(archive)
		_, err = output(extract)
		return err
	}
	if !versions.MatchString(release) {
		return errUnknown
	}
	download := exec.Command("go", "mod", "download", "-json", module+"@"+release)
	download.Dir = dir // without a go.mod, which may replace the module
	download.Env = append(os.Environ(), "GOWORK=off")
	out, err := output(download)
	if err != nil {
		return err
	}
	var info struct{ Dir string }
	if err := json.Unmarshal(out, &info); err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(info.Dir))
}

// presentSources copies the root module as it is now.
func presentSources(dir string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && (d.Name()[0] == '.' || exists(filepath.Join(path, "go.mod"))) {
				return filepath.SkipDir // another module
			}
			return os.MkdirAll(filepath.Join(dir, rel), 0o700)
		}
		if filepath.Ext(rel) != ".go" && rel != "go.mod" && rel != "go.sum" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), text, 0o600)
	})
}

// output runs a command. The error has what it printed to stderr.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, exit.Stderr)
	}
	return out, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// copyGoFiles replaces the directory to by the Go files of from, tests excepted.
func copyGoFiles(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
