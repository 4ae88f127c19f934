package layering

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	maxFields  = 14
	maxMethods = 25 // of a type whose methods are in more files than maxFiles
	maxFiles   = 4
)

// plainData are structs with more fields: records that are read as a whole, by people or as JSON.
var plainData = []string{
	"audit.Record", "view.Entry", "cmd/holdfast.entryJSON", "tests/campaign.recorded", "tests/campaign.summary",
	"tests/oracle.Hold",
}

// A type that has outgrown this does more than one thing: another one is missing. Not looked at are fakes and models,
// which have the operations and the state of what they stand for.
func TestTypesAreNotTooLarge(t *testing.T) {
	all := sources(t)
	methods, in := make(map[string]int), make(map[string]map[string]bool)
	var data []string
	for _, name := range slices.Sorted(maps.Keys(all.parsed)) {
		dir := path.Dir(name)
		if strings.HasSuffix(name, "_test.go") || dir == "etcdfake" || strings.HasPrefix(dir, "tests/models/") {
			continue
		}
		ast.Inspect(all.parsed[name], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				of := fmt.Sprintf("%s.%s", dir, strings.TrimSuffix(receiver(n), "."))
				if n.Recv == nil {
					break
				}
				if methods[of]++; in[of] == nil {
					in[of] = make(map[string]bool)
				}
				in[of][name] = true
			case *ast.TypeSpec:
				s, ok := n.Type.(*ast.StructType)
				if !ok || s.Fields.NumFields() <= maxFields {
					break
				}
				if of := dir + "." + n.Name.Name; slices.Contains(plainData, of) {
					data = append(data, of)
				} else {
					t.Errorf("%s: %s has %d fields; the limit is %d: which of them are a type of their own?",
						all.fset.Position(n.Pos()), n.Name.Name, s.Fields.NumFields(), maxFields)
				}
			}
			return true
		})
	}
	for of, n := range methods {
		if n > maxMethods && len(in[of]) > maxFiles {
			t.Errorf("%s has %d methods in %d files; the limit is %d in more than %d files: which type is missing?",
				of, n, len(in[of]), maxMethods, maxFiles)
		}
	}
	for _, of := range plainData {
		if !slices.Contains(data, of) {
			t.Errorf("plainData names %s, which is no struct with more than %d fields", of, maxFields)
		}
	}
}
