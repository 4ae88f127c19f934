// Package compiled is what "go list" says of packages, and the types that the compiler has written of them.
package compiled

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Package is the part of what "go list" says that is used.
type Package struct {
	ImportPath, Dir, Export, ForTest string
	GoFiles, Deps                    []string
}

// List runs "go list" in a directory. The arguments ask for the fields as JSON.
func List(dir string, args ...string) ([]Package, error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("go list %s: %w\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		return nil, err
	}
	var all []Package
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		if err := dec.Decode(&p); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("the output of go list: %w", err)
		}
		all = append(all, p)
	}
}

// Importer imports packages that were listed with -export.
func Importer(set *token.FileSet, all []Package) types.ImporterFrom {
	exports := make(map[string]string, len(all))
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	}).(types.ImporterFrom)
}
