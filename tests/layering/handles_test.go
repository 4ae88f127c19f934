package layering

import (
	"go/ast"
	"path"
	"strings"
	"testing"
)

// What has a Check is held, or lives: a log line that prints it must say what it is, and not its pointers.
func TestWhatCanBeCheckedCanBePrinted(t *testing.T) {
	checked, printed := make(map[string]string), make(map[string]bool)
	for name, file := range sources(t).parsed {
		dir := path.Dir(name)
		_, library := layers[dir]
		if !library || strings.Contains(name, "internal/") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			of := dir + " " + receiver(f)
			if dir != "locker" && !ast.IsExported(receiver(f)) { // handles of locker have one part in common
				continue
			}
			switch f.Name.Name {
			case "Check":
				checked[of] = name
			case "String":
				printed[of] = true
			}
		}
	}
	for of, name := range checked {
		if !printed[of] {
			t.Errorf("%s: %s has a Check and no String", name, of)
		}
	}
	if len(checked) < 5 {
		t.Errorf("only %d types have a Check", len(checked))
	}
}
