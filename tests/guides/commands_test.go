package guides

import (
	"encoding/json"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/holdfast-go/holdfast"

// command is a go command of a document that names packages.
type command struct {
	document, text string
	place          place
	packages       []string
}

// place is where go looks for packages.
type place struct{ dir, tags string }

var (
	script  = regexp.MustCompile("(?s)```sh\n(.*?)```")
	aboutGo = regexp.MustCompile(`^(?:cd (\S+) && )?(?:\w+=\S+ )*go (?:run|test|build|vet|install) (.*)$`)
	pkg     = regexp.MustCompile(`^(\./[\w./]*|` + regexp.QuoteMeta(module) + `(/[\w/]+)?)$`)
)

// goCommands returns the commands in the scripts of all documents that run, test, build or vet packages.
func goCommands(t *testing.T) (all []command) {
	t.Helper()
	for _, document := range documents(t) {
		for _, m := range script.FindAllStringSubmatch(read(t, document), -1) {
			for line := range strings.Lines(m[1]) {
				text, _, _ := strings.Cut(strings.TrimSpace(line), " #")
				found := aboutGo.FindStringSubmatch(strings.TrimSpace(text))
				if found == nil {
					continue
				}
				c := command{document: document, text: text, place: place{dir: filepath.Join(root, found[1])}}
				words := strings.Fields(found[2])
				for i, word := range words {
					switch {
					case i > 0 && words[i-1] == "-tags":
						c.place.tags = word
					case pkg.MatchString(word) && !strings.HasSuffix(word, "..."):
						c.packages = append(c.packages, word)
					}
				}
				if len(c.packages) == 0 && found[1] != "" {
					c.packages = []string{"."}
				}
				if len(c.packages) > 0 {
					all = append(all, c)
				}
			}
		}
	}
	if len(all) < 20 {
		t.Fatalf("only %d commands were found", len(all))
	}
	return all
}

// What a document tells to run has to run in a clone: its packages are in modules that the workspace reaches, and have
// files with the tags that the command gives.
func TestCommandsInDocumentsRunInAClone(t *testing.T) {
	commands := make(map[place][]command)
	for _, c := range goCommands(t) {
		commands[c.place] = append(commands[c.place], c)
	}
	for at, of := range commands {
		var packages []string
		for _, c := range of {
			packages = append(packages, c.packages...)
		}
		slices.Sort(packages)
		works := list(t, at, slices.Compact(packages))
		for _, c := range of {
			for _, name := range c.packages {
				full := name
				if strings.HasPrefix(name, ".") {
					full = path.Join(module, filepath.ToSlash(strings.TrimPrefix(at.dir, root)), name)
				}
				if !works[full] {
					t.Errorf("%s: %q: go finds no package %s in %s", c.document, c.text, name, at.dir)
				}
			}
		}
	}
}

// list returns the packages that go finds, by import path. One that has only a doc.go has nothing to run.
func list(t *testing.T, at place, packages []string) map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", slices.Concat([]string{
		"list", "-e", "-tags", at.tags, "-json=ImportPath,Error,GoFiles,TestGoFiles,XTestGoFiles",
	}, packages)...)
	cmd.Dir = at.dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	works := make(map[string]bool)
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath                         string
			Error                              *struct{ Err string }
			GoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&p); err == io.EOF {
			return works
		} else if err != nil {
			t.Fatal(err)
		}
		files := slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles)
		works[p.ImportPath] = p.Error == nil && slices.ContainsFunc(files, func(f string) bool { return f != "doc.go" })
	}
}
