package layering

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// mayReadNow maps the functions of package session that may read time.Now to their purpose. All other code there,
// deadlines above all, must use Options.Clock: it counts while the machine sleeps, does not jump when the wall clock is
// set, and tests can replace it.
var mayReadNow = map[string]string{
	"session/options.go MonotonicClock":  "is the clock: the difference of two monotonic readings",
	"session/options.go SystemClock":     "likewise, beside CLOCK_BOOTTIME",
	"session/keeper.go keeper.renewOnce": "duration of a renewal, for telemetry",
	"session/events.go events.publish":   "Event.At, for display",
}

// mayUseTheWall maps the functions that may read the wall clock to their purpose. They never compare it, because it
// jumps when it is set.
var mayUseTheWall = map[string]string{
	"internal/hold/minhold.go ownLease.end": "for display",
	"internal/layout/value.go Millis":       "the queueing time in an entry's value, for display",
	"internal/telemetry/states.go seconds":  "for display",
	"locker/detach.go Ticket.String":        "for display",
	"view/run.go Run.String":                "for display",
	"view/view.go Entry.String":             "for display",
}

// onlyOfTime lists methods of time.Time that drop the monotonic reading and that time.Duration does not have. Round and
// Truncate drop it too, but time.Duration also has them.
var onlyOfTime = []string{"UTC", "Local", "In", "Unix", "UnixMilli", "UnixMicro", "UnixNano", "AddDate", "Date",
	"Format"}

func TestNoDecisionUsesTheWallClock(t *testing.T) {
	used := make(map[string]bool)
	for name, file := range sources(t).parsed {
		dir := path.Dir(name)
		if _, library := layers[dir]; !library || strings.HasSuffix(name, "_test.go") {
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
						t.Errorf("%s: time.%s in package session: use Options.Clock. If no decision depends on it, add the function to "+
							"mayReadNow (time_test.go)", position, what)
					}
				case ofTime(sel, "Unix", "UnixMilli", "UnixMicro", "Date", "Parse"),
					!isPackage(sel.X) && slices.Contains(onlyOfTime, what),
					(what == "Round" || what == "Truncate") && fromNow(sel.X):
					used[where] = true
					if mayUseTheWall[where] == "" {
						t.Errorf("%s: %s reads the wall clock, which jumps when it is set. If no decision depends on it, add the "+
							"function to mayUseTheWall (time_test.go)", position, what)
					}
				}
				return true
			})
		}
	}
	for _, list := range []map[string]string{mayReadNow, mayUseTheWall} {
		for where := range list {
			if !used[where] {
				t.Errorf("%s no longer does so: remove it from the list (time_test.go)", where)
			}
		}
	}
}

// ofTime reports whether sel is one of the given names of package time.
func ofTime(sel *ast.SelectorExpr, names ...string) bool {
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == "time" && slices.Contains(names, sel.Sel.Name)
}

// isPackage reports whether an expression looks like the name of an imported package: parser.ParseFile resolves the
// identifiers that the file declares, but not its imports.
func isPackage(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Obj == nil
}

// fromNow reports whether an expression contains a call of time.Now.
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
