package layering

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"
	"testing"
)

// godoc shows the expression of a constant. One that only names another constant says nothing there: then the comment
// has to say the value.
func TestCommentsOfConstantsSayTheirValues(t *testing.T) {
	all := sources(t)
	values := make(map[string]ast.Expr) // "package.Name" of each constant of the library
	each := func(do func(pkg string, name *ast.Ident, value ast.Expr, comment string)) {
		for file, parsed := range all.parsed {
			if _, library := layers[strings.TrimPrefix(path.Dir(file), ".")]; !library || strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, decl := range parsed.Decls {
				g, ok := decl.(*ast.GenDecl)
				if !ok || g.Tok != token.CONST {
					continue
				}
				for _, s := range g.Specs {
					spec := s.(*ast.ValueSpec)
					for i, name := range spec.Names {
						if i < len(spec.Values) {
							do(parsed.Name.Name, name, spec.Values[i], g.Doc.Text()+spec.Doc.Text()+spec.Comment.Text())
						}
					}
				}
			}
		}
	}
	each(func(pkg string, name *ast.Ident, value ast.Expr, _ string) {
		values[pkg+"."+name.Name] = value
	})
	found := 0
	each(func(pkg string, name *ast.Ident, value ast.Expr, comment string) {
		_, ok := value.(*ast.SelectorExpr)
		of := types.ExprString(value)
		if !ok || !name.IsExported() || values[of] == nil { // nil: of the standard library, whose values are known
			return
		}
		found++
		v, err := types.Eval(all.fset, nil, token.NoPos, types.ExprString(values[of]))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(comment, ",", "")
		if v.Value.Kind() == constant.String {
			text = comment
		}
		if !strings.Contains(text, v.Value.ExactString()) {
			t.Errorf("the comment of %s.%s does not say that it is %s", pkg, name.Name, v.Value.ExactString())
		}
	})
	if found < 4 {
		t.Errorf("found only %d constants that name another one", found)
	}
}

// A kind is named by its constant, so that what a kind is called in keys and for people stands in one place.
// internal/layout says what it is called in keys.
func TestKindsAreNamedByTheirConstants(t *testing.T) {
	kinds := make(map[string]bool)
	for _, decl := range sources(t).parsed["kind.go"].Decls {
		ast.Inspect(decl, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				kinds[lit.Value] = true
			}
			return true
		})
	}
	if len(kinds) != 5 {
		t.Fatalf("kind.go has the kinds %v", kinds)
	}
	kinds[`"sem"`] = true
	for file, parsed := range sources(t).parsed {
		dir := strings.TrimPrefix(path.Dir(file), ".")
		_, library := layers[dir]
		if !library || dir == "internal/layout" || file == "kind.go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 && isLogged(call) {
				return false
			}
			if lit, ok := n.(*ast.BasicLit); ok && kinds[lit.Value] {
				t.Errorf("%s: %s is a kind: write holdfast.Kind…", sources(t).fset.Position(lit.Pos()), lit.Value)
			}
			return true
		})
	}
}

// isLogged reports whether a call writes to a log, where "shard" is the name of an attribute.
func isLogged(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (slices.Contains([]string{"Error", "Warn", "Info"}, method.Sel.Name))
}
