//go:build linux

package main

import (
	"go/ast"
	"go/token"
)

// require notes the returns without which a function with results does not compile: those at the end of each way
// through its body.
func (f *finder) require(typ *ast.FuncType, body *ast.BlockStmt) {
	if typ.Results.NumFields() > 0 {
		f.requireLast(body.List)
		return
	}
	// Without results, a return that is the last statement does nothing.
	if n := len(body.List); n > 0 {
		f.required[body.List[n-1]] = true
	}
}

func (f *finder) requireLast(list []ast.Stmt) {
	if len(list) > 0 {
		f.requireIn(list[len(list)-1])
	}
}

func (f *finder) requireIn(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.ReturnStmt:
		f.required[s] = true
	case *ast.BlockStmt:
		f.requireLast(s.List)
	case *ast.LabeledStmt:
		f.requireIn(s.Stmt)
	case *ast.IfStmt:
		f.requireLast(s.Body.List)
		if s.Else != nil {
			f.requireIn(s.Else)
		}
	case *ast.SwitchStmt:
		f.requireClauses(s.Body)
	case *ast.TypeSwitchStmt:
		f.requireClauses(s.Body)
	case *ast.SelectStmt:
		f.requireClauses(s.Body)
	}
}

func (f *finder) requireClauses(body *ast.BlockStmt) {
	for _, clause := range body.List {
		list := []ast.Stmt(nil)
		switch clause := clause.(type) {
		case *ast.CaseClause:
			list = clause.Body
		case *ast.CommClause:
			list = clause.Body
		}
		if n := len(list); n > 0 {
			if branch, ok := list[n-1].(*ast.BranchStmt); ok && branch.Tok == token.FALLTHROUGH {
				continue
			}
		}
		f.requireLast(list)
	}
}
