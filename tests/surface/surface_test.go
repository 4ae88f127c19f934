// Package surface_test calls what the packages of the SDK export, as the compiler lists it, with what should
// not be passed: a nil context, a zero value.
package surface_test

import (
	"go/token"
	"go/types"
	"path"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/tests/internal/compiled"
)

const module = "github.com/holdfast-go/holdfast"

// forTests are packages that only tests import: they fail the test instead of returning an error.
var forTests = []string{"etcdfake", "fencetest"}

// exported calls visit for each function, and for each type that is no interface, that a package of the SDK exports.
// name is as in "etcdfence.Writer".
func exported(t *testing.T, visit func(name string, object types.Object)) {
	t.Helper()
	all, err := compiled.List("../..", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	if err != nil {
		t.Fatal(err)
	}
	imports := compiled.Importer(token.NewFileSet(), all)
	for _, p := range all {
		if !strings.HasPrefix(p.ImportPath, module) || strings.Contains(p.ImportPath, "/internal/") ||
			strings.HasSuffix(p.ImportPath, forTests[0]) || strings.HasSuffix(p.ImportPath, forTests[1]) {
			continue
		}
		pkg, err := imports.Import(p.ImportPath)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range pkg.Scope().Names() {
			object := pkg.Scope().Lookup(name)
			if object.Exported() && !types.IsInterface(object.Type()) {
				visit(path.Base(p.ImportPath)+"."+name, object)
			}
		}
	}
}

// methods returns the exported methods of a type, those of its pointer included.
func methods(object types.Object) (all []*types.Func) {
	if _, isType := object.(*types.TypeName); !isType {
		return nil
	}
	set := types.NewMethodSet(types.NewPointer(object.Type()))
	for i := range set.Len() {
		if f := set.At(i).Obj().(*types.Func); f.Exported() {
			all = append(all, f)
		}
	}
	return all
}
