// Package guides compiles the Go in documents: each document as one package, which exists only in an overlay of the go
// command.
//
// A block is a program, declarations, or a fragment. A fragment is the body of a function that returns an error, and in
// it a line "…" stands for the check of err. What a fragment declares may stay unused, because the reader goes on with
// it; but not an err. Imports follow from the names that are used. What documents take for granted, such as ctx or a
// function of the reader's, is declared in tests/guides/testdata: in given.go for all of them, and in a file for each.
package guides

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

const module = "github.com/holdfast-go/holdfast"

// imports are the packages that documents use, by name. Those of holdfast are added by the caller of Compile.
var imports = map[string]string{
	"attribute": "go.opentelemetry.io/otel/attribute", "clientv3": "go.etcd.io/etcd/client/v3",
	"gocron": "github.com/go-co-op/gocron/v2", "metric": "go.opentelemetry.io/otel/sdk/metric",
	"prometheus": "go.opentelemetry.io/otel/exporters/prometheus", "ctrl": "sigs.k8s.io/controller-runtime",

	"dialect": "entgo.io/ent/dialect", "entsql": "entgo.io/ent/dialect/sql", "gorm": "gorm.io/gorm",
	"grpc": "google.golang.org/grpc", "rpctypes": "go.etcd.io/etcd/api/v3/v3rpc/rpctypes",

	"bytes": "bytes", "context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "log": "log", "os": "os",
	"pprof": "runtime/pprof",
	"rand":  "crypto/rand", "signal": "os/signal", "slog": "log/slog", "sql": "database/sql", "strings": "strings",
	"synctest": "testing/synctest", "testing": "testing", "time": "time", "tls": "crypto/tls", "url": "net/url",

	"holdfast": module, "admin": module + "/admin", "audit": module + "/audit", "election": module + "/election",
	"etcdfake": module + "/etcdfake", "etcdtest": module + "/etcdtest", "fencing": module + "/fencing",
	"etcdfence": module + "/fencing/etcdfence", "fencetest": module + "/fencing/fencetest",
	"gocronlock": module + "/contrib/gocronlock", "httpfence": module + "/fencing/httpfence",
	"grpcfence": module + "/fencing/grpcfence", "kubelock": module + "/contrib/kubelock", "locker": module + "/locker",
	"lastrun": module + "/lastrun", "member": module + "/member",
	"shard":   module + "/shard",
	"session": module + "/session", "sqlfence": module + "/fencing/sqlfence", "view": module + "/view",
}

var block = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Compile compiles the Go in these documents. link is a link in the caller's module to the directory of the repository:
// go test notes only what is read there, and else would reuse a result after a document or a source has changed. Errors
// name the document and its line.
func Compile(t *testing.T, link string, documents ...string) {
	t.Helper()
	readSources(t, link)
	root, err := filepath.EvalSymlinks(link)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &compiler{t: t, link: link, root: root, dir: t.TempDir(), overlay: make(map[string]string)}
	for _, document := range documents {
		c.add(document)
	}
	if t.Failed() || len(c.packages) == 0 {
		t.Fatalf("there is nothing to compile in %v", documents)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": c.overlay})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	// Without -o, packages that are compiled together are not written anywhere.
	// With -race, if that is how this test was compiled, what the documents import is not compiled once more.
	args := []string{"build", fmt.Sprintf("-race=%t", bubble.Race), "-gcflags=-e", "-overlay=" + file}
	args = append(args, slices.Sorted(maps.Keys(c.packages))...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "fmt")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// readSources reads the files of the library.
func readSources(t *testing.T, link string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(link)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && p != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "tests"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err == nil {
			_, err = os.ReadFile(filepath.Join(link, rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

type compiler struct {
	t        *testing.T
	link     string // to root
	root     string
	dir      string
	overlay  map[string]string
	packages map[string]bool // their directories from root
	files    int
}

// add adds a document.
func (c *compiler) add(document string) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.link, document))
	if err != nil {
		c.t.Fatal(err)
	}
	name := regexp.MustCompile(`\W`).ReplaceAllString(strings.TrimSuffix(document, ".md"), "_")
	of := filepath.Join(c.link, "tests", "guides", "testdata")
	given := []string{filepath.Join(of, "given.go"), filepath.Join(of, name+".go")}
	for i, at := range block.FindAllSubmatchIndex(text, -1) {
		line := bytes.Count(text[:at[2]], []byte("\n")) + 1
		source, kind, err := whole(string(text[at[2]:at[3]]), filepath.Join(c.root, document), line)
		if err != nil {
			c.t.Errorf("%s: the Go in line %d: %v", document, line, err)
			continue
		}
		if kind == program {
			c.put(fmt.Sprintf("%s_%d", name, i), source)
			continue
		}
		c.put(name, source)
		for _, file := range given {
			b, err := os.ReadFile(file)
			if os.IsNotExist(err) && file != given[0] {
				continue
			}
			if err != nil {
				c.t.Fatal(err)
			}
			c.put(name, string(b))
		}
		given = nil
	}
}

// put adds a file to a package.
func (c *compiler) put(name, source string) {
	c.t.Helper()
	c.files++
	real := filepath.Join(c.dir, fmt.Sprintf("%d.go", c.files))
	if err := os.WriteFile(real, []byte(source), 0o600); err != nil {
		c.t.Fatal(err)
	}
	dir := path.Join("tests", "guides", "page_"+name)
	c.overlay[filepath.Join(c.root, dir, fmt.Sprintf("%d.go", c.files))] = real
	if c.packages == nil {
		c.packages = make(map[string]bool)
	}
	c.packages["./"+dir] = true
}

type kind int

const (
	program kind = iota
	declarations
	fragment
)

// whole returns a block as a file, whose first line is that line of the document.
func whole(text, document string, line int) (source string, k kind, err error) {
	here := fmt.Sprintf("\n//line %s:%d\n", document, line)
	if strings.HasPrefix(text, "package ") {
		return here[1:] + text, program, nil
	}
	checked := regexp.MustCompile(`(?m)^(\s*)…$`).ReplaceAllString(text, "${1}if err != nil { return err }")
	bodies := [...]string{
		declarations: checked, fragment: "func _() error {" + here + checked + "\n%s\nreturn nil\n}\n",
	}
	for _, k := range []kind{declarations, fragment} {
		body := bodies[k]
		bare := strings.Replace(body, "%s", "", 1)
		f, parseErr := parser.ParseFile(token.NewFileSet(), "", "package page\n"+bare, 0)
		if parseErr != nil {
			err = parseErr
			continue
		}
		if k == fragment {
			body = strings.Replace(body, "%s", used(f), 1)
		} else {
			body = here + body
		}
		return "package page\n" + importsOf(f) + body, k, nil
	}
	return "", 0, err
}

// used returns statements that use what a fragment declares, but no err.
func used(f *ast.File) string {
	var all []string
	use := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok && id.Name != "_" && id.Name != "err" {
			all = append(all, "_ = "+id.Name)
		}
	}
	for _, statement := range f.Decls[0].(*ast.FuncDecl).Body.List {
		switch s := statement.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				for _, e := range s.Lhs {
					use(e)
				}
			}
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, name := range v.Names {
						use(name)
					}
				}
			}
		}
	}
	return strings.Join(all, "; ")
}

// importsOf returns the imports that a file needs: of names before a dot that it does not declare.
func importsOf(f *ast.File) string {
	unresolved := make(map[*ast.Ident]bool)
	for _, id := range f.Unresolved {
		unresolved[id] = true
	}
	paths := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && unresolved[id] && imports[id.Name] != "" {
				paths[fmt.Sprintf("import %s %q\n", id.Name, imports[id.Name])] = true
			}
		}
		return true
	})
	return strings.Join(slices.Sorted(maps.Keys(paths)), "")
}
