// Package layering holds this module to its layers and to what its documents
// say. It has no code, only tests.
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
)

const module = "github.com/holdfast-go/holdfast"

// leaves are the packages at the bottom, in the order of their layers: every
// package above may import them.
var leaves = []string{
	"", // the vocabulary: errors, causes, states
	"internal/names", "internal/callback", "internal/stale", "internal/telemetry", "etcderr", "backoff", "audit",
}

// rooms are the packages of this module that a program links, with those of this
// module, besides leaves, that each may import. The order of the lines is the
// order of the layers.
//
// A new package gets a line here, and one in DESIGN.md's file map.
var rooms = map[string][]string{
	"":                   {},
	"internal/names":     {""},
	"internal/callback":  {},
	"internal/stale":     {},
	"internal/telemetry": {},
	"etcderr":            {""},
	"backoff":            {"", "etcderr"},
	"audit":              {""},
	"internal/attempt":   leaves,
	"fencing":            above("internal/attempt"),
	"internal/fence":     above("fencing"),
	"fencing/sqlfence":   above("fencing", "internal/fence"),
	"fencing/httpfence":  above("fencing", "internal/fence"),
	"fencing/grpcfence":  above("fencing", "internal/fence"),
	"internal/lease":     above("internal/attempt"),
	"session":            above("internal/attempt", "internal/lease"),
	"internal/queue":     above("internal/attempt", "internal/lease", "fencing"),
	"inspect":            above("internal/attempt", "internal/lease", "fencing", "internal/queue"),
	"locker":             above("internal/attempt", "internal/lease", "fencing", "session", "internal/queue"),
	"election":           above("internal/attempt", "internal/lease", "fencing", "session", "internal/queue"),
}

func above(packages ...string) []string { return slices.Concat(leaves, packages) }

// kits are for tests, ours and users', and for the examples. They must not depend
// on what is tested with them.
var kits = []string{"etcdtest", "etcdfake", "internal/child", "internal/bubble"}

// free may import what they like: nobody imports them.
var free = []string{"examples", "internal/layering", "internal/queuemodel", "internal/queuetest", "tests"}

// forbidden in a program that imports one of the rooms, with the reason.
var forbidden = map[string]string{
	module + "/etcdtest":           "it is an etcd server",
	module + "/etcdfake":           "it is for tests",
	module + "/internal/child":     "it is for examples and tests",
	"go.etcd.io/etcd/server/v3":    "users would link an etcd server; only etcdtest may",
	"testing":                      "it adds flags to users' programs",
	"go.opentelemetry.io/otel/sdk": "who wants to see spans and metrics brings an SDK; the library has the API only",
	"go.uber.org/goleak":           "it is for tests",
	"github.com/stretchr":          "it is for tests",
}

// beyondClient is everything outside this module and the standard library that
// importing locker or election may link in addition to etcd's client. Whoever
// adds a line makes every user's binary pay for it.
var beyondClient = []string{
	"github.com/cenkalti/backoff/v4",
	"go.opentelemetry.io/otel", // the API; the rest is what that imports
	"go.opentelemetry.io/auto/sdk",
	"github.com/go-logr/logr",
	"github.com/go-logr/stdr",
	"github.com/cespare/xxhash/v2", // not with the oldest OpenTelemetry that go.mod allows
}

// pkg is what "go list" says of a package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

// packages are all of this module, and all that they depend on.
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
	sources(t) // has the test's cached result depend on every source file
	all, err := packages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

// ours cuts the module off an import path.
func ours(path string) (room string, ok bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// under reports whether path is one of roots, or inside one.
func under(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == root || strings.HasPrefix(path, root+"/")
	})
}

func TestImportsFollowTheLayers(t *testing.T) {
	for path, p := range list(t) {
		room, ok := ours(path)
		if !ok || under(room, free...) {
			continue
		}
		may, known := rooms[room]
		if !known && !slices.Contains(kits, room) {
			t.Errorf("package %s is in no layer: give it a line in rooms (layering_test.go), and in DESIGN.md's file map", path)
			continue
		}
		if slices.Contains(kits, room) {
			may = kits // one kit may be made of another
		}
		for _, imported := range p.Imports {
			other, ok := ours(imported)
			if ok && !slices.Contains(may, other) {
				t.Errorf("%s imports %s. The layers are\n"+
					"\tholdfast ← etcderr ← backoff ← internal/lease ← {session, internal/queue} ← {locker, election}\n"+
					"and fencing beside session: locker and election never import each other, fencing none of the four,\n"+
					"etcdtest, etcdfake and internal/child nothing of this module. %s may import: %s",
					show(room), show(other), show(room), strings.Join(may, ", "))
			}
		}
	}
}

func show(room string) string {
	if room == "" {
		return "the root package"
	}
	return room
}

func TestLibraryLinksNoServerAndNoTestLibrary(t *testing.T) {
	all := list(t)
	for room := range rooms {
		p, ok := all[join(room)]
		if !ok {
			continue // not written yet
		}
		for root, reason := range forbidden {
			i := slices.IndexFunc(p.Deps, func(dep string) bool { return under(dep, root) })
			if i >= 0 {
				t.Errorf("%s must not depend on %s: %s.\nIt does through: %s", show(room), root, reason, chain(all, p.ImportPath, p.Deps[i]))
			}
		}
	}
}

func join(room string) string {
	if room == "" {
		return module
	}
	return module + "/" + room
}

// chain is a shortest chain of imports from one package to another.
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
	has := func(deps []string) map[string]bool {
		set := map[string]bool{client: true}
		for _, dep := range deps {
			if _, own := ours(dep); !own && !all[dep].Standard {
				set[dep] = true
			}
		}
		return set
	}
	there := has(all[client].Deps)
	if len(there) < 10 {
		t.Fatalf("found %d dependencies of %s: this test has gone blind", len(there), client)
	}
	for _, room := range []string{"locker", "election"} {
		p, ok := all[join(room)]
		if !ok {
			continue // not written yet
		}
		added := has(p.Deps)
		maps.DeleteFunc(added, func(dep string, _ bool) bool { return there[dep] })
		for dep := range added {
			if !under(dep, beyondClient...) {
				t.Errorf("importing %s links %s, which etcd's client does not.\nIt comes through: %s\n"+
					"If it earns its place in every user's binary, add it to beyondClient (layering_test.go); if not, do without.",
					room, dep, chain(all, p.ImportPath, dep))
			}
		}
		for _, root := range beyondClient {
			if root != "github.com/cespare/xxhash/v2" && !slices.ContainsFunc(p.Deps, func(dep string) bool { return under(dep, root) }) {
				t.Errorf("%s does not link %s any more: take it out of beyondClient (layering_test.go)", room, root)
			}
		}
	}
}
