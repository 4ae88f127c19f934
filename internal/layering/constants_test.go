package layering

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path"
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
