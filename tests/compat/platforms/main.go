// Command platforms compiles packages and their tests for other systems, up to their types: no code is generated, so it
// takes seconds where "go vet" takes minutes. It prints what does not compile, and fails.
//
//	go run ./tests/compat/platforms darwin/arm64 windows/amd64
//
// With the variables of the go command it does so for other versions. So the root compiles with the oldest ones that
// its go.mod allows, for the system that this runs on:
//
//	go build -o /tmp/platforms ./tests/compat/platforms
//	GOWORK=off GOTOOLCHAIN=go1.25.0 /tmp/platforms -packages ./...
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/tools/go/packages"
)

// types is what it takes to check the types of packages, and of what they import. Of that it keeps no syntax.
const types = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
	packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedModule

func main() {
	patterns := flag.String("packages", "./... ./etcdtest/... ./cmd/holdfast/...",
		"`patterns`; the default is what is promised for each system: what users import, and the command")
	flag.Parse()
	platforms := flag.Args()
	if len(platforms) == 0 {
		platforms = []string{runtime.GOOS + "/" + runtime.GOARCH}
	}
	failed := false
	for _, platform := range platforms {
		system, processor, _ := strings.Cut(platform, "/")
		found, err := packages.Load(&packages.Config{Mode: types, Tests: true,
			Env: append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")},
			strings.Fields(*patterns)...)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", platform, err)
			os.Exit(1)
		}
		failed = packages.PrintErrors(found) > 0 || failed
		fmt.Printf("%s: %d packages\n", platform, len(found))
	}
	if failed {
		os.Exit(1)
	}
}
