//go:build linux

package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

const runtimeName = "mutant_" // the import's name in instrumented copies

// finder finds the places of one file.
type finder struct {
	*file
	info *types.Info
	fn   *ast.FuncDecl

	required map[ast.Stmt]bool // returns without which a function would not compile
}

func (f *file) find(info *types.Info) {
	for _, decl := range f.syntax.Decls {
		find := finder{file: f, info: info, required: make(map[ast.Stmt]bool)}
		if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok != token.VAR {
			continue
		}
		if fn, ok := decl.(*ast.FuncDecl); ok {
			find.fn = fn
			if fn.Body == nil {
				continue
			}
			find.require(fn.Type, fn.Body)
		}
		ast.PreorderStack(decl, nil, find.node)
	}
}

// node adds what may be mutated in n and reports whether to go on inside of it.
func (f *finder) node(n ast.Node, stack []ast.Node) bool {
	parent := ast.Node(nil)
	if len(stack) > 0 {
		parent = stack[len(stack)-1]
	}
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
	case *ast.ArrayType: // its length must be constant
		return false
	case *ast.CallExpr:
		if f.onlyWords(n) {
			return false
		}
	case *ast.FuncLit:
		f.require(n.Type, n.Body)
	}
	if s, ok := n.(ast.Stmt); ok && inList(s, parent) {
		f.statement(s, parent, stack)
	}
	e, ok := n.(ast.Expr)
	if !ok {
		return true
	}
	if f.mustBeConstant(e, parent) {
		return false
	}
	if value := f.info.Types[e].Value; value != nil {
		f.constant(e, value, parent)
		return false
	}
	f.condition(e, parent)
	return true
}

// onlyWords reports whether a call makes a text for people: a log record or an error. No mutant is made of these.
func (f *finder) onlyWords(call *ast.CallExpr) bool {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	obj := f.info.Uses[fun.Sel]
	if obj == nil || obj.Pkg() == nil {
		return false
	}
	switch obj.Pkg().Path() {
	case "log/slog", "log":
		return true
	case "fmt":
		return obj.Name() != "Sscanf" && obj.Name() != "Sscan"
	}
	return false
}

// unlocks reports whether a call unlocks a mutex. Without it the next one to lock it waits until the run is stopped,
// which takes long and tells nothing.
func (f *finder) unlocks(call *ast.CallExpr) bool {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	obj := f.info.Uses[fun.Sel]
	return obj != nil && obj.Pkg() != nil && obj.Pkg().Path() == "sync" && strings.HasSuffix(obj.Name(), "Unlock")
}

// inList reports whether s stands where a block may stand.
func inList(s ast.Stmt, parent ast.Node) bool {
	switch parent := parent.(type) {
	case *ast.BlockStmt:
		return true
	case *ast.CaseClause:
		return slices.Contains(parent.Body, s)
	case *ast.CommClause:
		return slices.Contains(parent.Body, s)
	}
	return false
}

func (f *finder) statement(s ast.Stmt, parent ast.Node, stack []ast.Node) {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok || f.onlyWords(call) || f.unlocks(call) {
			return
		}
		if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "panic" {
			return
		}
	case *ast.AssignStmt:
		blank := func(e ast.Expr) bool { name, ok := e.(*ast.Ident); return ok && name.Name == "_" }
		if s.Tok == token.DEFINE || !slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool { return !blank(e) }) {
			return
		}
	case *ast.DeferStmt:
		if f.unlocks(s.Call) {
			return
		}
	case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
	case *ast.BranchStmt:
		if s.Tok == token.GOTO || s.Tok == token.FALLTHROUGH || f.alone(s, parent, stack) {
			return
		}
	case *ast.ReturnStmt:
		if f.required[s] || f.alone(s, parent, stack) {
			return
		}
	default:
		return
	}
	f.add(s, statements, func(id int) []edit {
		return f.wrap(s, fmt.Sprintf("if %s.Keep(%d) { ", runtimeName, id), " }")
	}, f.text(s)+" → dropped")
}

// alone reports whether s is all that an if statement does, so that to drop it is to make the condition false.
func (f *finder) alone(s ast.Stmt, parent ast.Node, stack []ast.Node) bool {
	block, ok := parent.(*ast.BlockStmt)
	if !ok || len(block.List) != 1 || len(stack) < 2 {
		return false
	}
	around, ok := stack[len(stack)-2].(*ast.IfStmt)
	return ok && around.Body == block && around.Else == nil
}

// mustBeConstant reports whether e stands where the language asks for a constant, or for a name.
func (f *finder) mustBeConstant(e ast.Expr, parent ast.Node) bool {
	switch parent := parent.(type) {
	case *ast.KeyValueExpr:
		if parent.Key != e {
			return false
		}
		_, name := e.(*ast.Ident) // perhaps of a field
		return name || f.info.Types[e].Value != nil
	case *ast.CaseClause: // two constants may not be equal; variables may
		return f.info.Types[e].Value != nil
	}
	return false
}

func (f *finder) constant(e ast.Expr, value constant.Value, parent ast.Node) {
	typ := f.info.Types[e].Type
	if _, ok := parent.(*ast.ReturnStmt); ok && isBool(typ) {
		f.add(e, conditions, f.call(e, "Not"), f.text(e)+" → !"+f.text(e))
		return
	}
	n, exact := constant.Int64Val(constant.ToInt(value))
	basic, ok := typ.(*types.Basic)
	switch {
	case !exact || value.Kind() != constant.Int:
	case typ.String() == "time.Duration" && -1000 < n && n < 1000:
		f.bound(e, "Few", parent)
	case typ.String() == "time.Duration":
		f.add(e, constants, f.call(e, "Duration"), f.text(e)+" → 2 * "+f.text(e), f.text(e)+" → 0")
	case ok && basic.Info()&types.IsInteger != 0 && basic.Info()&types.IsUntyped == 0:
		f.bound(e, "Int["+basic.Name()+"]", parent)
	}
}

// bound mutates a number. Next to an operator that is mutated as well it leaves out what would be equal: n < 3 is not
// made n < 4, which is n <= 3.
func (f *finder) bound(e ast.Expr, function string, parent ast.Node) {
	changes := []string{f.text(e) + " → " + f.text(e) + " + 1", f.text(e) + " → " + f.text(e) + " - 1"}
	if around, ok := parent.(*ast.BinaryExpr); ok && around.Y == e {
		switch around.Op {
		case token.EQL, token.NEQ:
			return
		case token.LSS, token.GEQ:
			changes[0] = ""
		case token.LEQ, token.GTR:
			changes[1] = ""
		}
	}
	f.add(e, constants, f.call(e, function), changes...)
}

// call wraps e into a call of a function of package mutant.
func (f *finder) call(e ast.Expr, function string) func(id int) []edit {
	return func(id int) []edit {
		return f.wrap(e, fmt.Sprintf("%s.%s(%d, ", runtimeName, function, id), ")")
	}
}

func (f *finder) add(n ast.Node, kind string, edits func(id int) []edit, changes ...string) {
	f.places = append(f.places, &place{
		line: f.fset.Position(n.Pos()).Line, fn: f.fn, kind: kind, changes: changes, edits: edits,
	})
}

func isBool(t types.Type) bool {
	basic, ok := t.(*types.Basic)
	return ok && basic.Info()&types.IsBoolean != 0
}

func isOrdered(t types.Type) bool {
	if t == nil {
		return false
	}
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsOrdered != 0
}

// name returns the name of the function around a place.
func (p *place) name() string {
	if p.fn == nil {
		return "outside of functions"
	}
	if p.fn.Recv == nil {
		return p.fn.Name.Name
	}
	recv := strings.TrimPrefix(types.ExprString(p.fn.Recv.List[0].Type), "*")
	recv, _, _ = strings.Cut(recv, "[")
	return recv + "." + p.fn.Name.Name
}
