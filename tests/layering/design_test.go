package layering

import (
	"flag"
	"fmt"
	"go/doc"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the table of packages into DESIGN.md")

// What DESIGN.md says of a package is the first sentence of the package's own comment, up to a colon.
func TestDesignHasThePackages(t *testing.T) {
	const begin, end = "-run TestDesignHasThePackages -write -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(read(t, "DESIGN.md"), begin)
	table, after, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatalf("DESIGN.md lacks %q or %q", begin, end)
	}
	want := packageTable(t)
	if *write {
		text := before + begin + want + end + after
		if err := os.WriteFile(filepath.Join(root, "DESIGN.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if table != want {
		t.Errorf("DESIGN.md does not have the packages' comments as they are: "+
			"go test ./tests/layering -run TestDesignHasThePackages -write\n%s", want)
	}
}

// packageTable has a row for each package of the library, and for the kits of users' tests.
func packageTable(t *testing.T) string {
	t.Helper()
	comments := make(map[string]string)
	for file, parsed := range sources(t).parsed {
		if parsed.Doc != nil && !strings.HasSuffix(file, "_test.go") {
			comments[strings.TrimPrefix(path.Dir(file), ".")] = parsed.Doc.Text()
		}
	}
	dirs := slices.Sorted(maps.Keys(layers))
	dirs = append(dirs, "etcdfake", "etcdtest", "fencing/fencetest")
	var b strings.Builder
	b.WriteString("| package | |\n| --- | --- |\n")
	for _, dir := range dirs {
		text := strings.TrimPrefix(new(doc.Package).Synopsis(comments[dir]), "Package ")
		_, text, _ = strings.Cut(text, " ")
		if text, _, _ = strings.Cut(text, ": "); text == "" {
			t.Errorf("package %q has no comment", dir)
		}
		if dir == "" {
			dir = "holdfast"
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", dir, strings.TrimSuffix(text, "."))
	}
	return b.String()
}
