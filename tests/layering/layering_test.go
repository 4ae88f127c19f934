// Package layering tests that imports follow the layers and that the documents match the code. It contains only tests.
package layering

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const module = "github.com/holdfast-go/holdfast"

// leaves lists the packages that all packages above them may import, lowest layer first.
var leaves = []string{
	"", // the vocabulary: errors, causes, states, kinds
	"internal/names", "internal/callback", "internal/telemetry", "internal/retry", "etcderr",
	"backoff", "audit",
}

// layers maps each library package of this module to the packages of this module that it may import, lowest layer
// first.
//
// A new package needs a line here; then TestDesignHasThePackages asks for its row in DESIGN.md.
var layers = map[string][]string{
	"":                   {},
	"internal/names":     {""},
	"internal/callback":  {},
	"internal/telemetry": {""},
	"internal/retry":     {""},
	"etcderr":            {"", "internal/retry"},
	"backoff":            {"", "internal/retry", "etcderr"},
	"audit":              {"", "internal/names"},
	"internal/requests":  leaves,
	"fencing":            {"", "internal/names"},
	"internal/fence":     above("fencing"),
	"fencing/etcdfence":  above("internal/requests", "fencing", "internal/fence"),
	"fencing/memfence":   above("fencing", "internal/fence"),
	"fencing/sqlfence":   above("fencing", "internal/fence"),
	"fencing/httpfence":  above("fencing", "internal/fence"),
	"fencing/grpcfence":  above("fencing", "internal/fence"),
	"view":               above("fencing"),
	"internal/layout":    above("fencing", "view"),
	"internal/lease":     above("internal/requests", "internal/layout"),
	"internal/watching":  above("internal/requests", "internal/lease", "view"),
	"session":            locks,
	"internal/leftovers": above("internal/requests", "internal/layout", "internal/lease"),
	"internal/queue":     slices.Concat(locks, []string{"internal/leftovers"}),
	"internal/hold":      slices.Concat(locks, []string{"internal/queue"}),
	"internal/front":     locks,
	"internal/explain":   above("internal/layout", "fencing", "view"),
	"admin": above("internal/requests", "internal/layout", "internal/lease", "internal/watching", "fencing",
		"view"),
	"locker":   slices.Concat(locks, []string{"session", "internal/queue", "internal/hold"}),
	"election": slices.Concat(locks, []string{"session", "internal/queue", "internal/hold", "internal/front"}),
	"member":   slices.Concat(locks, []string{"session"}),
	"shard":    slices.Concat(locks, []string{"session", "member", "internal/queue", "internal/hold"}),

	"lastrun": slices.Concat(locks, []string{"session", "internal/queue", "internal/hold", "fencing/etcdfence"}),

	// Each a module of its own.
	"contrib/gocronlock": above("fencing", "session", "locker", "election"),
	"contrib/kubelock":   above("fencing", "session", "locker", "election"),
}

// locks lists what the packages that make locks and terms may import.
var locks = above("internal/requests", "internal/layout", "internal/lease", "internal/watching", "fencing", "view")

func above(packages ...string) []string { return slices.Concat(leaves, packages) }

// testKits lists the packages that tests and examples use, ours and those of users. They must not depend on the
// packages that are tested with them.
var testKits = []string{
	"etcdtest", "etcdfake", "internal/testkit/child", "internal/testkit/bubble", "internal/testkit/leak",
}

// free lists the packages that may import everything, because no package imports them.
var free = []string{
	"cmd", "examples", "fencing/fencetest", "internal/testkit", "tests",
}

// forbidden maps the dependencies that a library package must not have to the reason.
var forbidden = map[string]string{
	module + "/etcdtest":           "it is an etcd server",
	module + "/etcdfake":           "it is for tests",
	module + "/internal/testkit":   "it is for examples and tests",
	"go.etcd.io/etcd/server/v3":    "users would link an etcd server; only etcdtest may",
	"testing":                      "it adds flags to users' programs",
	"go.opentelemetry.io/otel/sdk": "the library uses the API only; programs choose the SDK",
	"go.uber.org/goleak":           "it is for tests",
	"github.com/stretchr":          "it is for tests",
}

// beyondClient lists the third-party modules that importing locker or election may link in addition to etcd's client.
// Every line enlarges every user's binary.
var beyondClient = []string{
	"github.com/cenkalti/backoff/v4",
	"go.opentelemetry.io/otel", // the API; it imports the next three
	"go.opentelemetry.io/auto/sdk",
	"github.com/go-logr/logr",
	"github.com/go-logr/stdr",
	"github.com/cespare/xxhash/v2", // the oldest OpenTelemetry that go.mod allows does not import it
}

// pkg is the part of the output of "go list" that the tests use.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

// packages lists the packages of this module and all their dependencies, by import path.
var packages = sync.OnceValues(func() (map[string]pkg, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = errors.New(string(exit.Stderr))
		}
		return nil, err
	}
	all := make(map[string]pkg)
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[p.ImportPath] = p
	}
})

func list(t *testing.T) map[string]pkg {
	t.Helper()
	sources(t) // makes the cached test result depend on every source file
	all, err := packages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

// ours returns the path of a package of this module, relative to the module.
func ours(path string) (dir string, ok bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// under reports whether path is one of roots or below one.
func under(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == root || strings.HasPrefix(path, root+"/")
	})
}

func TestImportsFollowTheLayers(t *testing.T) {
	for path, p := range list(t) {
		dir, ok := ours(path)
		if !ok || under(dir, free...) {
			continue
		}
		may, known := layers[dir]
		if !known && !slices.Contains(testKits, dir) {
			t.Errorf("package %s is in no layer: add it to layers (layering_test.go)", path)
			continue
		}
		if slices.Contains(testKits, dir) {
			may = testKits // test testKits may import each other
		}
		for _, imported := range p.Imports {
			other, ok := ours(imported)
			if ok && !slices.Contains(may, other) {
				t.Errorf("%s imports %s. The layers are\n"+
					"\tholdfast ← etcderr ← backoff ← internal/lease ← {session, internal/queue} ← {locker, election}\n"+
					"and fencing beside session. locker and election never import each other; fencing imports none of those four;\n"+
					"etcdtest, etcdfake and internal/testkit/child import nothing of this module. %s may import: %s",
					show(dir), show(other), show(dir), strings.Join(may, ", "))
			}
		}
	}
}

func show(dir string) string {
	if dir == "" {
		return "the root package"
	}
	return dir
}

func TestLibraryLinksNoServerAndNoTestLibrary(t *testing.T) {
	all := list(t)
	for dir := range layers {
		p, ok := all[join(dir)]
		if !ok {
			continue // not written yet
		}
		for root, reason := range forbidden {
			i := slices.IndexFunc(p.Deps, func(dep string) bool { return under(dep, root) })
			if i >= 0 {
				t.Errorf("%s must not depend on %s: %s.\nImported through: %s", show(dir), root, reason,
					chain(all, p.ImportPath, p.Deps[i]))
			}
		}
	}
}

func join(dir string) string {
	if dir == "" {
		return module
	}
	return module + "/" + dir
}

// chain returns a shortest chain of imports from one package to another.
func chain(all map[string]pkg, from, to string) string {
	cameFrom := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range all[queue[0]].Imports {
			if _, seen := cameFrom[next]; !seen {
				cameFrom[next] = queue[0]
				queue = append(queue, next)
			}
		}
	}
	var links []string
	for at := to; at != ""; at = cameFrom[at] {
		links = append(links, at)
	}
	slices.Reverse(links)
	return strings.Join(links, " → ")
}

func TestLocksAddOnlyListedDependencies(t *testing.T) {
	const client = "go.etcd.io/etcd/client/v3"
	all := list(t)
	thirdParty := func(deps []string) map[string]bool {
		set := map[string]bool{client: true}
		for _, dep := range deps {
			if _, own := ours(dep); !own && !all[dep].Standard {
				set[dep] = true
			}
		}
		return set
	}
	ofClient := thirdParty(all[client].Deps)
	if len(ofClient) < 10 {
		t.Fatalf("found only %d dependencies of %s: this test no longer sees them", len(ofClient), client)
	}
	for _, dir := range []string{"locker", "election"} {
		p, ok := all[join(dir)]
		if !ok {
			continue // not written yet
		}
		added := thirdParty(p.Deps)
		maps.DeleteFunc(added, func(dep string, _ bool) bool { return ofClient[dep] })
		for dep := range added {
			if !under(dep, beyondClient...) {
				t.Errorf("importing %s links %s, which etcd's client does not.\nImported through: %s\n"+
					"If it is worth its size in every user's binary, add it to beyondClient (layering_test.go); otherwise remove it.",
					dir, dep, chain(all, p.ImportPath, dep))
			}
		}
		for _, root := range beyondClient {
			if root != "github.com/cespare/xxhash/v2" &&
				!slices.ContainsFunc(p.Deps, func(dep string) bool { return under(dep, root) }) {
				t.Errorf("%s no longer links %s: remove it from beyondClient (layering_test.go)", dir, root)
			}
		}
	}
}
