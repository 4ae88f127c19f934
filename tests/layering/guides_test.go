package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// documents returns the paths of the repository's Markdown files.
func documents(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{
		"*.md", "docs/*.md", "contrib/*/README.md", "examples/*/README.md", "tests/*/README.md", "tests/README.md",
	} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			rel, err := filepath.Rel(root, name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, filepath.ToSlash(rel))
		}
	}
	if len(all) < 10 {
		t.Fatalf("documents: %v", all)
	}
	return all
}

// exported returns the names of the public packages, and the names they export: "package.Name", "Type.Member" and
// "package.Type.Member".
func exported(t *testing.T) (packages, names map[string]bool) {
	t.Helper()
	packages, names = make(map[string]bool), make(map[string]bool)
	embeds := make(map[[2]string]bool) // {outer, embedded}, both as "package.Type"
	for file, parsed := range sources(t).parsed {
		dir := path.Dir(file)
		pkg := parsed.Name.Name
		if strings.HasSuffix(file, "_test.go") || pkg == "main" || strings.Contains("/"+dir+"/", "/internal/") {
			continue
		}
		packages[pkg] = true
		add := func(typ, name string) {
			if typ == "" {
				names[pkg+"."+name] = true
			} else {
				names[pkg+"."+typ+"."+name] = true
				names[typ+"."+name] = true
			}
		}
		for _, decl := range parsed.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				add(strings.TrimSuffix(receiver(d), "."), d.Name.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.ValueSpec:
						for _, name := range s.Names {
							add("", name.Name)
						}
					case *ast.TypeSpec:
						add("", s.Name.Name)
						var members *ast.FieldList
						switch typ := s.Type.(type) {
						case *ast.StructType:
							members = typ.Fields
						case *ast.InterfaceType:
							members = typ.Methods
						default:
							continue
						}
						for _, member := range members.List {
							for _, name := range member.Names {
								add(s.Name.Name, name.Name)
							}
							if id, ok := member.Type.(*ast.Ident); ok && len(member.Names) == 0 {
								embeds[[2]string{pkg + "." + s.Name.Name, pkg + "." + id.Name}] = true
							}
						}
					}
				}
			}
		}
	}
	for known := 0; known < len(names); { // an embedded type may embed another one
		known = len(names)
		for e := range embeds {
			for name := range maps.Clone(names) {
				if member, ok := strings.CutPrefix(name, e[1]+"."); ok {
					names[e[0]+"."+member] = true
					_, typ, _ := strings.Cut(e[0], ".")
					names[typ+"."+member] = true
				}
			}
		}
	}
	return packages, names
}

// Names that a document writes as package.Name or Type.Member must be exported. The first column of a CHANGELOG table
// is exempt: it lists old names.
func TestDocumentsNameExistingAPI(t *testing.T) {
	packages, names := exported(t)
	qualified := regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	member := regexp.MustCompile("`([A-Z]\\w*\\.[A-Z]\\w*)[`(]")
	for _, document := range documents(t) {
		for line := range strings.Lines(read(t, document)) {
			if document == "CHANGELOG.md" && strings.HasPrefix(line, "| ") {
				_, line, _ = strings.Cut(strings.TrimPrefix(line, "| "), " | ")
			}
			for _, m := range qualified.FindAllStringSubmatch(line, -1) {
				name := m[1] + "." + m[2]
				if packages[m[1]] && !names[name] {
					t.Errorf("%s names %s, which does not exist", document, name)
				} else if packages[m[1]] && m[3] != "" && !names[name+"."+m[3]] && !names[m[2]+"."+m[3]] {
					t.Errorf("%s names %s.%s, which does not exist", document, name, m[3])
				}
			}
			for _, m := range member.FindAllStringSubmatch(line, -1) {
				if document != "DESIGN.md" && !names[m[1]] {
					t.Errorf("%s names %s, which does not exist", document, m[1])
				}
			}
		}
	}
}

func TestGoInDocumentsParses(t *testing.T) {
	for _, document := range documents(t) {
		for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, document), -1) {
			src := strings.ReplaceAll(m[1], "\n…\n", "\n")
			var err error
			for _, whole := range []string{src, "package p\n" + src, "package p\nfunc _() {\n" + src + "\n}"} {
				if _, err = parser.ParseFile(token.NewFileSet(), document, whole, 0); err == nil {
					break
				}
			}
			if err != nil {
				t.Errorf("%s: %v in\n%s", document, err, m[1])
			}
		}
	}
}

func TestCommandsInDocumentsNameExistingPackages(t *testing.T) {
	for _, document := range documents(t) {
		for line := range strings.Lines(read(t, document)) {
			if !regexp.MustCompile(`\bgo (run|test|build) `).MatchString(line) {
				continue
			}
			for _, m := range regexp.MustCompile(`\s\./([\w/]+)`).FindAllStringSubmatch(line, -1) {
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s: %v in %q", document, err, line)
				}
			}
		}
	}
}

// Links within the repository must lead to a file, and to a heading or anchor in it.
func TestLinksInDocumentsResolve(t *testing.T) {
	for _, document := range documents(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(read(t, document), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			name := path.Join(path.Dir(document), target)
			if target == "" {
				name = document
			}
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s links to %s: %v", document, m[1], err)
			} else if anchor != "" && !anchors(read(t, name))[anchor] {
				t.Errorf("%s links to %s, but %s has no such heading", document, m[1], name)
			}
		}
	}
}

// anchors returns the link targets in a document: its headings, as GitHub spells their anchors, and its HTML anchors.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	for _, m := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	return all
}

// Tables, links and pictures may be wider. In Go a tab counts as one column.
func TestLinesAreAtMost120Columns(t *testing.T) {
	for _, document := range documents(t) {
		checkColumns(t, document, func(line string) bool {
			return strings.HasPrefix(line, "|") || strings.Contains(line, "](")
		})
	}
	for file := range sources(t).parsed {
		checkColumns(t, file, func(string) bool { return false })
	}
}

func checkColumns(t *testing.T, file string, mayBeWider func(line string) bool) {
	t.Helper()
	n := 0
	for line := range strings.Lines(read(t, file)) {
		n++
		columns := utf8.RuneCountInString(strings.TrimRight(line, "\n"))
		if columns > 120 && !mayBeWider(line) {
			t.Errorf("%s:%d has %d columns; the limit is 120", file, n, columns)
		}
	}
}
