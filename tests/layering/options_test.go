package layering

import (
	"go/ast"
	"path"
	"strings"
	"testing"
)

// A With that replaced all options would drop, without a word, what an earlier With has set.
func TestEachWithAddsToTheOptionsThatStand(t *testing.T) {
	found := 0
	for name, file := range sources(t).parsed {
		_, library := layers[path.Dir(name)]
		if !library || strings.Contains(name, "internal/") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != "With" {
				continue
			}
			found++
			adds := false
			ast.Inspect(f.Body, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if ok && sel.Sel.Name == "Over" {
					of, ok := sel.X.(*ast.Ident)
					adds = adds || ok && of.Name == "options"
				}
				return true
			})
			if !adds {
				t.Errorf("%s: %sWith does not call options.Over", name, receiver(f))
			}
		}
	}
	if found < 11 {
		t.Errorf("%d methods With were found, and there were 11", found)
	}
}
