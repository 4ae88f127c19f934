package layering

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"
	"testing"
)

// harmless maps each operation that the library performs while it holds a mutex to the reason why it can neither block
// nor call back. Calls of functions of the same package are not listed, because the test inspects their bodies.
// Anything else fails the test: an RPC, a callback of the user, a wait.
var harmless = map[string]string{
	"calls append": builtin, "calls close": builtin, "calls delete": builtin, "calls len": builtin,
	"calls time.Duration": builtin, "calls make": builtin,
	"calls max": builtin, "calls min": builtin,
	"calls slices.DeleteFunc": pure, "calls slices.ContainsFunc": pure,
	"calls slices.Collect": pure, "calls cmp.Or": pure, "calls e.modified.Load": pure, "calls e.modified.Store": pure,
	"calls maps.Keys": pure, "calls maps.DeleteFunc": pure,
	"calls ln.waiting.PushBack": pure, "calls ln.waiting.Remove": pure, "calls ln.waiting.Front": pure,
	"calls ln.waiting.Len": pure, "calls c.line.waiting.Len": pure, "calls c.line.waiting.Remove": pure,
	"calls c.at.Prev": pure, "calls el.Prev": pure,
	"calls time.Now": pure, "calls now.Sub": pure,
	"calls lastStream.Add": pure, "calls known.gone.IsZero": pure,
	"calls context.WithCancelCause": pure, "calls w.running.Add": pure,
	"calls tasks.Add": pure, "calls r.copies.Go": "starts a goroutine",

	"calls time.AfterFunc":     "starts a timer, which calls back later on its own goroutine",
	"calls s.client.Endpoints": "copies the list under a mutex that etcd's client holds during no request",
	"calls b.timer.Stop":       timer,
	"calls l.limit.Stop":       timer,
	"calls r.timer.Reset":      timer,

	"calls w.key.lease.SetWatched": "stores a value",
	"calls l.origin.Observer":      "of tests alone, which must not call back: see lease.Observe",

	"calls create":    "the constructor given to Work.Extension, which must only build a value",
	"calls p.host.Go": "starts a goroutine; locks work.mu, under which no other mutex is locked",
	"calls sub.queue.Add": "queues a callback for the queue's own goroutine; locks Queue.mu, under which no other " +
		"mutex is locked",
	"sends to c.turn":      "buffered for the only value that a caller receives",
	"receives from m.turn": "the caller's own value is in the buffer",
}

const (
	builtin = "part of the language"
	pure    = "only computes"
	timer   = "does not wait for a running timer function"
)

// checker finds what one package does under a mutex.
type checker struct {
	t     *testing.T
	fset  *token.FileSet
	funcs map[string][]*ast.FuncDecl // by name; methods of different types share an entry
	seen  map[*ast.FuncDecl]bool
	used  map[string]bool // the entries of harmless that were needed
}

func TestNothingUnderAMutexBlocksOrCallsBack(t *testing.T) {
	all := sources(t)
	packages, used := make(map[string]checker), make(map[string]bool)
	regions := 0
	for name, file := range all.parsed {
		dir := strings.TrimPrefix(path.Dir(name), ".")
		if _, ok := layers[dir]; !ok || strings.HasSuffix(name, "_test.go") {
			continue
		}
		c, ok := packages[dir]
		if !ok {
			c = checker{t, all.fset, make(map[string][]*ast.FuncDecl), make(map[*ast.FuncDecl]bool), used}
			packages[dir] = c
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				c.funcs[f.Name.Name] = append(c.funcs[f.Name.Name], f)
			}
		}
	}
	for _, c := range packages {
		for name, decls := range c.funcs {
			for _, f := range decls {
				ast.Inspect(f.Body, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.CallExpr:
						if isMutex(n, "Lock", "RLock") {
							regions++
						}
					case *ast.FuncLit: // runs later, without the mutex
						c.list(n.Body.List, false)
					}
					return true
				})
				c.list(f.Body.List, strings.HasSuffix(name, "Locked"))
			}
		}
	}
	for what := range harmless {
		if !used[what] {
			t.Errorf("no code %s under a mutex now: remove that from harmless (mutex_test.go)", what)
		}
	}
	if regions < 30 {
		t.Fatalf("found only %d places that lock a mutex: this test no longer sees them", regions)
	}
}

// isMutex reports whether a call is one of methods of a variable or field whose name ends in mu or Mu.
func isMutex(call *ast.CallExpr, methods ...string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains(methods, sel.Sel.Name) &&
		strings.HasSuffix(strings.ToLower(types.ExprString(sel.X)), "mu")
}

// list checks statements in order and reports whether the mutex is held after the last one.
func (c checker) list(stmts []ast.Stmt, locked bool) bool {
	for _, stmt := range stmts {
		locked = c.stmt(stmt, locked)
	}
	return locked
}

func (c checker) stmt(stmt ast.Stmt, locked bool) bool {
	switch s := stmt.(type) {
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok && isMutex(call, "Lock", "RLock") {
			return true
		} else if ok && isMutex(call, "Unlock", "RUnlock") {
			return false
		}
	case *ast.DeferStmt:
		if isMutex(s.Call, "Unlock", "RUnlock") {
			return locked // held to the end of the function
		}
	case *ast.GoStmt:
		return locked // runs on another goroutine
	case *ast.BlockStmt:
		return c.list(s.List, locked)
	case *ast.LabeledStmt:
		return c.stmt(s.Stmt, locked)
	case *ast.IfStmt:
		c.nodes(locked, s.Init, s.Cond)
		c.list(s.Body.List, locked)
		if s.Else != nil {
			c.stmt(s.Else, locked)
		}
		return locked
	case *ast.ForStmt:
		c.nodes(locked, s.Init, s.Cond, s.Post)
		c.list(s.Body.List, locked)
		return locked
	case *ast.RangeStmt:
		c.nodes(locked, s.X)
		c.list(s.Body.List, locked)
		return locked
	case *ast.SwitchStmt:
		c.nodes(locked, s.Init, s.Tag)
		c.clauses(s.Body, locked)
		return locked
	case *ast.TypeSwitchStmt:
		c.nodes(locked, s.Init, s.Assign)
		c.clauses(s.Body, locked)
		return locked
	case *ast.SelectStmt:
		c.selects(s, locked)
		return locked
	}
	c.nodes(locked, stmt)
	return locked
}

func (c checker) clauses(body *ast.BlockStmt, locked bool) {
	for _, stmt := range body.List {
		clause := stmt.(*ast.CaseClause)
		for _, e := range clause.List {
			c.nodes(locked, e)
		}
		c.list(clause.Body, locked)
	}
}

// selects ignores the communication of a select that has a default case, because it does not block.
func (c checker) selects(s *ast.SelectStmt, locked bool) {
	blocks := !slices.ContainsFunc(s.Body.List, func(c ast.Stmt) bool { return c.(*ast.CommClause).Comm == nil })
	for _, stmt := range s.Body.List {
		clause := stmt.(*ast.CommClause)
		if blocks && clause.Comm != nil {
			c.nodes(locked, clause.Comm)
		}
		c.list(clause.Body, locked)
	}
}

// nodes checks expressions and simple statements.
func (c checker) nodes(locked bool, nodes ...ast.Node) {
	if !locked {
		return
	}
	for _, node := range nodes {
		if node == nil {
			continue
		}
		ast.Inspect(node, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.SendStmt:
				c.report(n.Pos(), "sends to "+types.ExprString(n.Chan))
			case *ast.UnaryExpr:
				if n.Op == token.ARROW {
					c.report(n.Pos(), "receives from "+types.ExprString(n.X))
				}
			case *ast.CallExpr:
				c.call(n)
			}
			return true
		})
	}
}

// call checks a call under a mutex. Of a function of the same package it checks the body.
func (c checker) call(call *ast.CallExpr) {
	full := types.ExprString(call.Fun)
	if isMutex(call, "Lock", "Unlock", "RLock", "RUnlock") {
		return
	}
	short := full[strings.LastIndexByte(full, '.')+1:]
	own := c.funcs[short]
	if _, ok := harmless["calls "+full]; ok || len(own) == 0 {
		c.report(call.Pos(), "calls "+full)
		return
	}
	for _, f := range own {
		if !c.seen[f] {
			c.seen[f] = true
			c.list(f.Body.List, true)
		}
	}
}

func (c checker) report(pos token.Pos, what string) {
	if _, ok := harmless[what]; ok {
		c.used[what] = true
		return
	}
	c.t.Errorf("%v: under a mutex it %s. If that can neither block nor call back, say why in harmless (mutex_test.go)",
		c.fset.Position(pos), what)
}
