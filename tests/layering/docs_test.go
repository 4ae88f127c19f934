package layering

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

// files holds the parsed Go files of the repository.
type files struct {
	fset   *token.FileSet
	parsed map[string]*ast.File // by slash-separated path
	funcs  map[string]bool      // "file.go Func", "file.go Type.Method"
	tests  map[string]bool      // by name; false: not in a _test.go file
}

// parsed reads every file in this process: "go test" then does not reuse a cached result after a file has changed.
var parsed = sync.OnceValues(func() (files, error) {
	all := files{token.NewFileSet(), make(map[string]*ast.File), make(map[string]bool), make(map[string]bool)}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && p != root && (name[0] == '.' || name[0] == '_' || name == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		file, err := parser.ParseFile(all.fset, rel, src, parser.ParseComments)
		if err != nil {
			return err
		}
		all.parsed[rel] = file
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				all.funcs[rel+" "+receiver(f)+f.Name.Name] = true
				all.tests[f.Name.Name] = all.tests[f.Name.Name] || strings.HasSuffix(rel, "_test.go")
			}
		}
		return nil
	})
	return all, err
})

func sources(t *testing.T) files {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// inherited lists methods that the standard library documents.
var inherited = []string{"Error", "String", "Unwrap"}

func TestEverythingExportedIsDocumented(t *testing.T) {
	all := sources(t)
	byDir := make(map[string][]*ast.File)
	for name := range all.parsed {
		dir := path.Dir(name)
		if dir == "." {
			dir = ""
		}
		_, library := layers[dir]
		if (library || slices.Contains(testKits, dir)) && !strings.HasSuffix(name, "_test.go") {
			// Parsed again, because go/doc modifies the syntax tree.
			file, err := parser.ParseFile(all.fset, filepath.Join(root, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			byDir[dir] = append(byDir[dir], file)
		}
	}
	for dir, files := range byDir {
		p, err := doc.NewFromFiles(all.fset, files, join(dir), doc.PreserveAST)
		if err != nil {
			t.Fatal(err)
		}
		if p.Doc == "" {
			t.Errorf("package %s has no package comment: say what it is for, and what it does and does not guarantee", show(dir))
		}
		missing := func(pos token.Pos, what, name string) {
			t.Errorf("%s: exported %s %s has no doc comment; say what a caller can rely on", all.fset.Position(pos), what, name)
		}
		values := func(what string, vs []*doc.Value) {
			for _, v := range vs {
				for _, spec := range v.Decl.Specs {
					s := spec.(*ast.ValueSpec)
					if v.Doc == "" && s.Doc == nil && s.Comment == nil {
						missing(s.Pos(), what, s.Names[0].Name)
					}
				}
			}
		}
		funcs := func(fs []*doc.Func) {
			for _, f := range fs {
				if f.Doc == "" && (f.Recv == "" || !slices.Contains(inherited, f.Name)) {
					missing(f.Decl.Pos(), "func", strings.TrimLeft(f.Recv+"."+f.Name, ".*"))
				}
			}
		}
		values("const", p.Consts)
		values("var", p.Vars)
		funcs(p.Funcs)
		for _, typ := range p.Types {
			if typ.Doc == "" {
				missing(typ.Decl.Pos(), "type", typ.Name)
			}
			values("const", typ.Consts)
			values("var", typ.Vars)
			funcs(typ.Funcs)
			funcs(typ.Methods)
			if typ.Name == "Options" {
				checkOptions(typ, missing)
			}
		}
	}
}

// checkOptions reports the exported fields of an options struct that lack a doc comment above them.
func checkOptions(typ *doc.Type, missing func(token.Pos, string, string)) {
	for _, spec := range typ.Decl.Specs {
		s, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range s.Fields.List {
			for _, name := range field.Names {
				if name.IsExported() && field.Doc == nil {
					missing(name.Pos(), "field", typ.Name+"."+name.Name)
				}
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestREADMEIsShortAndItsExamplesAreReal(t *testing.T) {
	readme := read(t, "README.md")
	if n := strings.Count(readme, "\n"); n >= 150 {
		t.Errorf("README.md has %d lines; the limit is 149. Move details to a package comment or DESIGN.md", n)
	}
	for _, command := range []string{
		"go run ./examples/quickstart",
		"go test -race -vet=off ./tests/simulation ./tests/etcd/... ./shard ./... ./cmd/holdfast/...",
		"go test -race ./tests/robustness work",
	} {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(command) + `( *#.*)?$`).MatchString(readme) {
			t.Errorf("README.md lacks the command %q on a line of its own", command)
		}
	}
	_, program, ok := strings.Cut(read(t, "examples/lock/main.go"), "\npackage main\n")
	if !ok {
		t.Fatal("examples/lock/main.go has lost its package clause")
	}
	if program = "package main\n" + program; !strings.Contains(readme, "```go\n"+program+"```\n") {
		t.Errorf("README.md must show the program in examples/lock/main.go, which CI compiles:\n%s", program)
	}
}

// The test in the guide must be one that CI runs.
func TestTestingGuideShowsARealTest(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "examples/service/service_test.go"), "// guide begins\n\n")
	test, _, ok := strings.Cut(rest, "\n// guide ends")
	if !ok {
		t.Fatal(`service_test.go has lost its markers "guide begins" and "guide ends"`)
	}
	if !strings.Contains(read(t, "docs/testing.md"), "```go\n"+test+"```\n") {
		t.Errorf("docs/testing.md must show the test in service_test.go, which CI runs:\n%s", test)
	}
}

// Each piece of code in these guides must be one that CI compiles.
func TestGuidesShowRealExamples(t *testing.T) {
	for _, c := range []struct {
		guide, examples string
		pieces          int
	}{
		{"docs/choosing.md", "locker/example_choosing_test.go", 1},
		{"docs/cron.md", "locker/example_cron_test.go", 4},
		{"docs/fencing-sql.md", "tests/sqlfence/orm_test.go", 2},
		{"docs/kubernetes.md", "election/example_kubernetes_test.go", 1},
		{"docs/kubernetes.md", "tests/kubelock/reconciler_test.go", 1},
		{"docs/migrating.md", "locker/example_migrating_test.go", 3},
		{"docs/object-stores.md", "fencing/example_objectstore_test.go", 3},
	} {
		pieces := strings.Split(read(t, c.examples), "\n// guide: ")
		if len(pieces) != c.pieces+2 { // what is before the first marker, the examples, what is after the last
			t.Errorf("%s has %d markers", c.examples, len(pieces)-1)
			continue
		}
		text := read(t, c.guide)
		for _, piece := range pieces[1 : len(pieces)-1] {
			name, code, _ := strings.Cut(piece, "\n\n")
			if !strings.Contains(text, "```go\n"+code+"```\n") {
				t.Errorf("%s must show the piece %q of %s:\n%s", c.guide, name, c.examples, code)
			}
		}
	}
}

func TestDocumentsNameExistingCode(t *testing.T) {
	all := sources(t)
	for _, document := range documents(t) {
		text := read(t, document)
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(text, -1) {
			if !all.tests[name] {
				t.Errorf("%s names %s, but there is no such test", document, name)
			}
		}
		for _, name := range regexp.MustCompile(`[\w./-]+\.go\b`).FindAllString(text, -1) {
			name = strings.TrimPrefix(name, "../") // a link from docs/
			known := func(file string) bool { return file == name || strings.HasSuffix(file, "/"+name) }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(all.parsed)), known) {
				t.Errorf("%s names %s, but there is no such file", document, name)
			}
		}
		// Documents refer to code as `dir/file.go` Func, Type.Method.
		listed := regexp.MustCompile("`([\\w/]+/\\w+\\.go)` ((?:[\\w.]+, )*[\\w.]+)")
		for _, m := range listed.FindAllStringSubmatch(text, -1) {
			for _, name := range strings.Split(m[2], ", ") {
				if regexp.MustCompile(`^\w+(\.\w+)?$`).MatchString(name) && !all.funcs[m[1]+" "+name] {
					t.Errorf("%s names %s in %s, but there is no such function", document, name, m[1])
				}
			}
		}
	}
}

// receiver returns "Type." for a method, "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if generic, ok := typ.(*ast.IndexExpr); ok {
		typ = generic.X
	}
	return fmt.Sprint(typ, ".")
}
