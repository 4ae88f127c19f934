// Package graph tests what holdfast adds to a service: modules, changed versions, and linked packages. It creates the
// module of a service with the go command, as a user would, and needs the module proxy until the modules are cached.
package graph_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const root = "github.com/holdfast-go/holdfast"

// added lists the modules that holdfast may add to a service that already has etcd's client and OpenTelemetry. The last
// one is not linked: etcd's client 3.6 needs it, which is the oldest that holdfast allows, and 3.7 does not.
var added = []string{root, "github.com/cenkalti/backoff/v4", "github.com/gogo/protobuf"}

// never lists modules that holdfast must not add to a service.
var never = []string{
	root + "/etcdtest", root + "/examples", root + "/tests",
	"go.etcd.io/etcd/server", "go.etcd.io/etcd/pkg", "go.etcd.io/bbolt", "go.etcd.io/raft",
	"github.com/jackc", "github.com/go-sql-driver", "github.com/lib/pq", "modernc.org", "github.com/mattn/go-sqlite3",
}

// neverLinked lists packages that holdfast must not add to a service's binary. Packages of the modules in never are
// excluded as well.
var neverLinked = []string{
	"github.com/gogo/protobuf", "testing", root + "/etcdfake", root + "/internal/testkit/child",
	root + "/internal/testkit/bubble", "go.uber.org/goleak", "go.opentelemetry.io/otel/sdk", "github.com/stretchr/testify",
}

// A service that adds holdfast keeps its go directive and all versions, and gets no modules besides added.
func TestAddingHoldfastKeepsVersionsAndAddsOnlyListedModules(t *testing.T) {
	for name, user := range map[string]struct {
		requires []string
		before   []string // files of testdata
		after    []string // files of testdata that use holdfast
	}{
		"oldest supported versions": {
			[]string{"go.etcd.io/etcd/client/v3 v3.6.0", "go.opentelemetry.io/otel v1.34.0"},
			[]string{"before.go"}, []string{"holdfast.go"},
		},
		"an older driver, and the libraries of tests/go.mod, which are compiled already": {
			[]string{
				"github.com/jackc/pgx/v5 v5.7.0", "go.etcd.io/etcd/client/v3 v3.7.3", "google.golang.org/grpc v1.83.2",
				"go.opentelemetry.io/otel v1.45.0",
			},
			[]string{"before.go", "database.go"}, []string{"holdfast.go", "raise.go"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModule(t, user.requires, user.before)
			before, goBefore := m.modules(t)
			linkedBefore := m.packages(t)
			m.add(t, user.after)
			after, goAfter := m.modules(t)

			if goAfter != goBefore {
				t.Errorf("go directive changed from %s to %s", goBefore, goAfter)
			}
			for path, version := range before {
				if after[path] != version {
					t.Errorf("%s changed from %s to %q", path, version, after[path])
				}
			}
			for _, path := range slices.Sorted(maps.Keys(after)) {
				if before[path] != "" {
					continue
				}
				if !slices.Contains(added, path) {
					t.Errorf("the service gets module %s %s. If every service needs it, add it to added (graph_test.go)", path,
						after[path])
				}
				if under(path, never) {
					t.Errorf("the service gets module %s, which is in never (graph_test.go)", path)
				}
			}
			for _, path := range m.packages(t) {
				if !slices.Contains(linkedBefore, path) && (under(path, never) || under(path, neverLinked)) {
					t.Errorf("the service links %s, which is for tests or servers", path)
				}
			}
			m.compile(t)
		})
	}
}

// What a README says of getting its module works beside a clone, before that is released: this checkout stands for what
// its git clone would bring. The program of the first one is built with it.
func TestCommandsThatGetAModuleWork(t *testing.T) {
	for _, readme := range []string{"README.md", "contrib/gocronlock/README.md", "contrib/kubelock/README.md"} {
		t.Run(readme, func(t *testing.T) {
			checkout, err := filepath.Abs("../../..")
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(checkout, readme))
			if err != nil {
				t.Fatal(err)
			}
			begins := regexp.MustCompile(`(?ms)^ *git clone https://` + root + ` ../holdfast[^\n]*\n` +
				`( *go mod edit .*?^ *go get [^\n]*)`)
			found := begins.FindStringSubmatch(string(text))
			if found == nil {
				t.Fatalf("%s does not say how to get its module: git clone, go mod edit, go get", readme)
			}
			commands := found[1]
			m := newModule(t, nil, nil)
			beside := filepath.Join(filepath.Dir(m.dir), "holdfast")
			if err := os.Symlink(checkout, beside); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(beside)
			m.run(t, "sh", "-e", "-c", commands)
			if readme != "README.md" {
				return
			}
			_, program, _ := strings.Cut(string(text), "```go\n")
			program, _, _ = strings.Cut(program, "```")
			if err := os.WriteFile(filepath.Join(m.dir, "main.go"), []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
			m.run(t, "go", "mod", "tidy")
			// By its own path, under which it has been compiled before.
			m.run(t, "go", "mod", "edit", "-replace="+root+"="+checkout)
			m.compile(t)
		})
	}
}

// What docs/testing.md says of a module for tests with etcdtest works beside a clone, and leaves the service's own
// module as it is.
func TestModuleForTestsLeavesTheServiceAsItIs(t *testing.T) {
	t.Parallel()
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(checkout, "docs", "testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?ms)^mkdir locktest .*?(^go mod tidy)`).FindString(string(text))
	setUp, tidy, ok := strings.Cut(commands, "go mod tidy")
	if !ok || tidy != "" {
		t.Fatal("docs/testing.md has no commands that make a module for tests")
	}
	service := newModule(t, nil, nil)
	before, goBefore := service.modules(t)
	if err := os.Symlink(checkout, filepath.Join(filepath.Dir(service.dir), "holdfast")); err != nil {
		t.Fatal(err)
	}
	service.run(t, "sh", "-e", "-c", setUp)
	tests := module{filepath.Join(service.dir, "locktest")}
	tests.copy(t, []string{"lock_test.go.txt"})
	name := filepath.Join(tests.dir, "lock_test.go")
	if err := os.Rename(name+".txt", name); err != nil {
		t.Fatal(err)
	}
	tests.run(t, "go", "mod", "tidy")
	tests.run(t, "go", "vet", ".")
	if after, goAfter := service.modules(t); !maps.Equal(before, after) || goBefore != goAfter {
		t.Errorf("the service has Go %s and %v, and before %s and %v", goAfter, after, goBefore, before)
	}
	raised, version := tests.modules(t)
	if raised["go.etcd.io/etcd/client/v3"] == "" || !strings.HasPrefix(version, "1.26") {
		t.Errorf("the module for tests has Go %s and %v", version, raised)
	}
}

// under reports whether path is one of paths or below one.
func under(path string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(path+"/", p+"/") })
}

// module is the module of a service, in its own directory.
type module struct{ dir string }

// newModule creates a module with these requirements and files of testdata.
func newModule(t *testing.T, requires, files []string) module {
	t.Helper()
	m := module{t.TempDir()}
	text := "module example.com/service\n\ngo 1.25.0\n\nrequire (\n\t" + strings.Join(requires, "\n\t") + "\n)\n"
	if err := os.WriteFile(filepath.Join(m.dir, "go.mod"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m.copy(t, files)
	m.run(t, "go", "mod", "tidy")
	return m
}

// add adds files that use holdfast, and requires it from this checkout.
func (m module) add(t *testing.T, files []string) {
	t.Helper()
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	m.copy(t, files)
	m.run(t, "go", "mod", "edit", "-require="+root+"@v0.0.0", "-replace="+root+"="+checkout)
	m.run(t, "go", "mod", "tidy")
}

func (m module) copy(t *testing.T, files []string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err == nil {
			err = os.WriteFile(filepath.Join(m.dir, file), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// modules returns the versions of all modules in the build list, and the go directive.
func (m module) modules(t *testing.T) (versions map[string]string, goVersion string) {
	t.Helper()
	versions = make(map[string]string)
	for line := range strings.Lines(m.run(t, "go", "list", "-m", "-f", "{{if not .Main}}{{.Path}} {{.Version}}{{end}}",
		"all")) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			versions[path] = version
		}
	}
	return versions, m.run(t, "go", "list", "-m", "-f", "{{.GoVersion}}")
}

// packages returns the packages that the service links.
func (m module) packages(t *testing.T) []string {
	t.Helper()
	return strings.Fields(m.run(t, "go", "list", "-deps", "."))
}

// compile compiles the service, and links nothing.
func (m module) compile(t *testing.T) {
	t.Helper()
	m.run(t, "go", "list", "-export", ".")
}

func (m module) run(t *testing.T, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, stderr.String())
	}
	return string(out)
}
