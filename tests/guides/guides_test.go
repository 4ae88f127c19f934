package guides

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/tests/internal/guides"
)

func TestMain(m *testing.M) { leak.Main(m) }

const (
	root = "../.."
	link = "testdata/root" // to root; go test notes what is read through it
)

// documents returns the paths of the repository's Markdown files.
func documents(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case !d.IsDir() && filepath.Ext(p) == ".md":
			rel, err := filepath.Rel(root, p)
			all = append(all, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, document string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(link, document))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What needs Kubernetes is compiled by tests/kubelock, because that takes minutes. What docs/kubernetes.md shows is the
// code of tests, which TestGuidesShowRealExamples compares.
func TestGoInDocumentsCompiles(t *testing.T) {
	all := slices.DeleteFunc(documents(t), func(document string) bool {
		return slices.Contains([]string{"contrib/kubelock/README.md", "docs/kubernetes.md"}, document) ||
			!strings.Contains(read(t, document), "```go\n")
	})
	if len(all) < 15 {
		t.Fatalf("only %d documents have Go: %v", len(all), all)
	}
	guides.Compile(t, link, all...)
}
