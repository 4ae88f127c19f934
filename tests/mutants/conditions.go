//go:build linux

package main

import (
	"go/ast"
	"go/token"
	"slices"
)

// condition adds the mutants of what decides something, and of comparisons wherever they stand.
func (f *finder) condition(e ast.Expr, parent ast.Node) {
	if t := f.info.Types[e]; !t.IsValue() || !isBool(t.Type) {
		return
	}
	inner := ast.Unparen(e)
	if not, ok := inner.(*ast.UnaryExpr); ok && not.Op == token.NOT || inner != e {
		// The operand is mutated, unless the whole decides something.
		if !decides(e, parent) {
			return
		}
	}
	text := f.text(e)
	if wholeTrue, wholeFalse := fixed(e, parent); wholeTrue {
		f.add(e, conditions, f.call(e, "True"), text+" → true")
		if wholeFalse {
			f.add(e, conditions, f.call(e, "False"), text+" → false")
		}
	} else if wholeFalse {
		f.add(e, conditions, f.call(e, "False"), text+" → false")
	}
	if binary, ok := e.(*ast.BinaryExpr); ok {
		f.binary(binary)
	}
}

// decides reports whether e alone decides what a statement does.
func decides(e ast.Expr, parent ast.Node) bool {
	switch parent := parent.(type) {
	case *ast.IfStmt:
		return parent.Cond == e
	case *ast.ForStmt:
		return parent.Cond == e
	case *ast.CaseClause, *ast.ReturnStmt:
		return true
	}
	return false
}

// fixed reports which values of e are mutants that no other mutant is equal to. An endless loop tells nothing.
func fixed(e ast.Expr, parent ast.Node) (wholeTrue, wholeFalse bool) {
	if decides(e, parent) {
		_, loop := parent.(*ast.ForStmt)
		return !loop, true
	}
	if around, ok := parent.(*ast.BinaryExpr); ok {
		return around.Op == token.LAND, around.Op == token.LOR
	}
	return false, false
}

// ordered maps an operator to the function that compares, and the operators of its mutants.
var ordered = map[token.Token][3]string{
	token.LSS: {"Less", "<=", ">="},
	token.LEQ: {"LessEqual", "<", ">"},
	token.GTR: {"Greater", ">=", "<="},
	token.GEQ: {"GreaterEqual", ">", "<"},
}

func (f *finder) binary(e *ast.BinaryExpr) {
	change := func(op string) string {
		return f.text(e) + " → " + f.text(e.X) + " " + op + " " + f.text(e.Y)
	}
	switch e.Op {
	case token.EQL:
		f.add(e, comparisons, f.call(e, "Not"), change("!="))
	case token.NEQ:
		f.add(e, comparisons, f.call(e, "Not"), change("=="))
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		names := ordered[e.Op]
		if !isOrdered(f.info.Types[e.X].Type) {
			f.add(e, comparisons, f.call(e, "Not"), change(names[2]))
			return
		}
		f.add(e, comparisons, func(id int) []edit {
			return append(f.call(e, names[0])(id), edit{offset: f.offset(e.OpPos), length: len(e.Op.String()), text: ","})
		}, change(names[1]), change(names[2]))
	case token.LAND, token.LOR:
		other := token.LOR
		if e.Op == token.LOR {
			other = token.LAND
		}
		// By De Morgan: a || b is !(!a && !b), and evaluates b only if it must.
		f.add(e, conditions, func(id int) []edit {
			return slices.Concat(f.call(e, "Not")(id), f.call(e.X, "Not")(id), f.call(e.Y, "Not")(id))
		}, change(other.String()))
	}
}
