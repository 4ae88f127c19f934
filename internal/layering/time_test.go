package layering

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// mayReadNow are the functions of package session that read time.Now, with what
// they want it for. All else there, every deadline among it, has to go by
// Options.Clock: that one counts while the machine sleeps, does not jump when
// the wall clock is set, and can be injected.
var mayReadNow = map[string]string{
	"session/clock.go MonotonicClock":         "it is the clock: the difference of two monotonic readings",
	"session/renew.go Session.renewOnce":      "how long a renewal took, for telemetry",
	"session/session.go Session.TrustedUntil": "for display",
	"session/events.go Session.publish":       "Event.At, for display",
}

// mayUseTheWall are the functions that take the wall part of a time, which
// jumps when somebody sets the clock: never to compare it.
var mayUseTheWall = map[string]string{
	"internal/queue/value.go millis":       "an entry's value says since when, for people",
	"internal/queue/value.go Value.String": "likewise",
	"inspect/entry.go Entry.String":        "likewise",
}

// onlyOfTime are methods that time.Time has and time.Duration has not, and after
// which the monotonic reading is gone; with Round and Truncate of a time.Now.
var onlyOfTime = []string{"UTC", "Local", "In", "Unix", "UnixMilli", "UnixMicro", "UnixNano", "AddDate", "Date", "Format"}

func TestNoDecisionUsesTheWallClock(t *testing.T) {
	used := make(map[string]bool)
	for name, file := range sources(t).parsed {
		dir := path.Dir(name)
		if _, room := rooms[dir]; !room || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, decl := range file.Decls {
			where := name
			if f, ok := decl.(*ast.FuncDecl); ok {
				where += " " + receiver(f) + f.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				position := sources(t).fset.Position(sel.Pos())
				what := sel.Sel.Name
				switch {
				case dir == "session" && ofTime(sel, "Now", "Since", "Until"):
					used[where] = true
					if mayReadNow[where] == "" {
						t.Errorf("%s: time.%s in package session: decide by Options.Clock. If nothing is decided by it, say so in mayReadNow (time_test.go)", position, what)
					}
				case ofTime(sel, "Unix", "UnixMilli", "UnixMicro", "Date", "Parse"),
					!isPackage(sel.X) && slices.Contains(onlyOfTime, what),
					(what == "Round" || what == "Truncate") && fromNow(sel.X):
					used[where] = true
					if mayUseTheWall[where] == "" {
						t.Errorf("%s: %s takes the wall part of a time, which jumps. If nothing is decided by it, say so in mayUseTheWall (time_test.go)", position, what)
					}
				}
				return true
			})
		}
	}
	for _, list := range []map[string]string{mayReadNow, mayUseTheWall} {
		for where := range list {
			if !used[where] {
				t.Errorf("%s does not do so any more: take it out of the list (time_test.go)", where)
			}
		}
	}
}

// ofTime reports whether sel is one of these names of package time.
func ofTime(sel *ast.SelectorExpr, names ...string) bool {
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == "time" && slices.Contains(names, sel.Sel.Name)
}

// isPackage reports whether an expression is the name of an imported package,
// as far as that can be told without types: parser.ParseFile resolves what the
// file declares itself.
func isPackage(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Obj == nil
}

// fromNow reports whether an expression is made of a call of time.Now.
func fromNow(x ast.Expr) bool {
	found := false
	ast.Inspect(x, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && ofTime(sel, "Now") {
			found = true
		}
		return !found
	})
	return found
}
