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

// harmless is all that the library does while it holds a mutex, beside calling
// functions of the same package, which are looked into: with the reason why it
// can neither block nor call back. What is not here is not done: an RPC, a
// user's function, a wait.
var harmless = map[string]string{
	"calls append": builtin, "calls close": builtin, "calls delete": builtin, "calls len": builtin, "calls time.Duration": builtin, "calls make": builtin,
	"calls max": builtin, "calls min": builtin,
	"calls holdfast.LeaseID": pure, "calls slices.DeleteFunc": pure, "calls slices.ContainsFunc": pure,
	"calls slices.Collect": pure, "calls slices.Clone": pure, "calls clientv3.OpTxn(slices.Clone(cs), nil, nil).Txn": pure, "calls maps.Keys": pure, "calls maps.DeleteFunc": pure,
	"calls ln.waiting.PushBack": pure, "calls ln.waiting.Remove": pure, "calls ln.waiting.Front": pure, "calls ln.waiting.Len": pure,
	"calls time.Now": pure, "calls time.Now().Add": pure, "calls time.Until": pure, "calls now.Sub": pure, "calls lastStream.Add": pure, "calls e.delayUntil.IsZero": pure, "calls h.since.After": pure,
	"calls context.WithCancelCause": pure, "calls l.connected.Err": pure, "calls s.running.Add": pure,

	"calls clientv3.Compare": pure, "calls clientv3.CreateRevision": pure, "calls string": builtin,
	"calls clientv3.OpTxn": pure,

	"calls time.AfterFunc": "starts a timer; what it calls runs later, on a goroutine of its own", "calls c.overdue.Stop": "of such a timer: it does not wait for what runs",
	"calls r.timer.Stop": "likewise", "calls h.limit.Stop": "likewise", "calls r.timer.Reset": "likewise",

	"calls create":          "Host.Extension's, which must only build",
	"calls p.host.Go":       "starts a goroutine; it takes Session.mu, which is taken before no other",
	"calls sub.queue.Add":   "queues a callback on a goroutine of its own; it takes Queue.mu, which is taken before no other",
	"calls sub.queue.Ended": "takes Queue.mu, too",
	"sends to t.turn":       "has room for the one value that a ticket ever gets",
	"receives from m.turn":  "takes back the caller's own value",
}

const (
	builtin = "of the language"
	pure    = "computes"
)

// held finds what is done under a mutex in the files of one package.
type held struct {
	t     *testing.T
	fset  *token.FileSet
	funcs map[string][]*ast.FuncDecl // by name: methods of different types are not told apart
	seen  map[*ast.FuncDecl]bool
	used  map[string]bool // of harmless
}

func TestNothingUnderAMutexBlocksOrCallsBack(t *testing.T) {
	all := sources(t)
	packages, used := make(map[string]held), make(map[string]bool)
	regions := 0
	for name, file := range all.parsed {
		dir := strings.TrimPrefix(path.Dir(name), ".")
		if _, ok := rooms[dir]; !ok || strings.HasSuffix(name, "_test.go") {
			continue
		}
		h, ok := packages[dir]
		if !ok {
			h = held{t, all.fset, make(map[string][]*ast.FuncDecl), make(map[*ast.FuncDecl]bool), used}
			packages[dir] = h
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				h.funcs[f.Name.Name] = append(h.funcs[f.Name.Name], f)
			}
		}
	}
	for _, h := range packages {
		for name, decls := range h.funcs {
			for _, f := range decls {
				ast.Inspect(f.Body, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.CallExpr:
						if isMutex(n, "Lock", "RLock") {
							regions++
						}
					case *ast.FuncLit: // runs at a time of its own
						h.list(n.Body.List, false)
					}
					return true
				})
				h.list(f.Body.List, strings.HasSuffix(name, "Locked"))
			}
		}
	}
	for what := range harmless {
		if !used[what] {
			t.Errorf("nothing %s under a mutex any more: take that out of harmless (mutex_test.go)", what)
		}
	}
	if regions < 30 {
		t.Fatalf("found %d places where a mutex is locked: this test has gone blind", regions)
	}
}

// isMutex reports whether a call is one of methods of something called mu.
func isMutex(call *ast.CallExpr, methods ...string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains(methods, sel.Sel.Name) && strings.HasSuffix(types.ExprString(sel.X), "mu")
}

// list goes through statements in order, and reports whether the mutex is held
// at their end.
func (h held) list(stmts []ast.Stmt, locked bool) bool {
	for _, stmt := range stmts {
		locked = h.stmt(stmt, locked)
	}
	return locked
}

func (h held) stmt(stmt ast.Stmt, locked bool) bool {
	switch s := stmt.(type) {
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok && isMutex(call, "Lock", "RLock") {
			return true
		} else if ok && isMutex(call, "Unlock", "RUnlock") {
			return false
		}
	case *ast.DeferStmt:
		if isMutex(s.Call, "Unlock", "RUnlock") {
			return locked // to the end of the function
		}
	case *ast.GoStmt:
		return locked // it runs elsewhere
	case *ast.BlockStmt:
		return h.list(s.List, locked)
	case *ast.LabeledStmt:
		return h.stmt(s.Stmt, locked)
	case *ast.IfStmt:
		h.nodes(locked, s.Init, s.Cond)
		h.list(s.Body.List, locked)
		if s.Else != nil {
			h.stmt(s.Else, locked)
		}
		return locked
	case *ast.ForStmt:
		h.nodes(locked, s.Init, s.Cond, s.Post)
		h.list(s.Body.List, locked)
		return locked
	case *ast.RangeStmt:
		h.nodes(locked, s.X)
		h.list(s.Body.List, locked)
		return locked
	case *ast.SwitchStmt:
		h.nodes(locked, s.Init, s.Tag)
		h.clauses(s.Body, locked)
		return locked
	case *ast.TypeSwitchStmt:
		h.nodes(locked, s.Init, s.Assign)
		h.clauses(s.Body, locked)
		return locked
	case *ast.SelectStmt:
		h.selects(s, locked)
		return locked
	}
	h.nodes(locked, stmt)
	return locked
}

func (h held) clauses(body *ast.BlockStmt, locked bool) {
	for _, c := range body.List {
		clause := c.(*ast.CaseClause)
		for _, e := range clause.List {
			h.nodes(locked, e)
		}
		h.list(clause.Body, locked)
	}
}

// selects lets the communication of a select with a default pass: it does not
// wait.
func (h held) selects(s *ast.SelectStmt, locked bool) {
	waits := !slices.ContainsFunc(s.Body.List, func(c ast.Stmt) bool { return c.(*ast.CommClause).Comm == nil })
	for _, c := range s.Body.List {
		clause := c.(*ast.CommClause)
		if waits && clause.Comm != nil {
			h.nodes(locked, clause.Comm)
		}
		h.list(clause.Body, locked)
	}
}

// nodes judges what stands in expressions and simple statements.
func (h held) nodes(locked bool, nodes ...ast.Node) {
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
				h.report(n.Pos(), "sends to "+types.ExprString(n.Chan))
			case *ast.UnaryExpr:
				if n.Op == token.ARROW {
					h.report(n.Pos(), "receives from "+types.ExprString(n.X))
				}
			case *ast.CallExpr:
				h.call(n)
			}
			return true
		})
	}
}

// call judges a call under a mutex. A function of the same package is as
// harmless as what it does.
func (h held) call(call *ast.CallExpr) {
	full := types.ExprString(call.Fun)
	if isMutex(call, "Lock", "Unlock", "RLock", "RUnlock") {
		return
	}
	short := full[strings.LastIndexByte(full, '.')+1:]
	own := h.funcs[short]
	if _, ok := harmless["calls "+full]; ok || len(own) == 0 {
		h.report(call.Pos(), "calls "+full)
		return
	}
	for _, f := range own {
		if !h.seen[f] {
			h.seen[f] = true
			h.list(f.Body.List, true)
		}
	}
}

func (h held) report(pos token.Pos, what string) {
	if _, ok := harmless[what]; ok {
		h.used[what] = true
		return
	}
	h.t.Errorf("%v: under a mutex it %s. If that can neither block nor call back, say why in harmless (mutex_test.go)", h.fset.Position(pos), what)
}
