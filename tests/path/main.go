// Command path counts the functions that one acquisition runs, from the call of Lock to the return of Unlock, and the
// files in which they are: what a reader goes through who follows it.
//
//	go run ./tests/path
//	go run ./tests/path -list waiting
//	go run ./tests/path -lines
//
// With -lines it counts the lines of code that a program gets which imports locker and election, by package.
//
// It runs itself with coverage, on an etcd in memory. The sessions have acquired before: what they do only once is not
// counted. An acquisition that waits is counted with the release that it waits for. What sessions do meanwhile on their
// own goroutines is counted, too; as a rule that is nothing. Functions of one statement say what something is called;
// how many of them there are is said, too.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/holdfast-go/holdfast/"

func main() {
	list := flag.String("list", "", "print the functions of one: free, waiting, permit, waiting-permit")
	run := flag.String("run", "", "for the program itself: run one")
	out := flag.String("out", "", "for the program itself: the directory of what -run counts")
	onlyLines := flag.Bool("lines", false, "print the lines of code behind locker and election, and do nothing else")
	flag.Parse()
	if *onlyLines {
		if err := lines(); err != nil {
			log.Fatal(err)
		}
		return
	}
	if *run != "" {
		if err := acquire(*run, *out); err != nil {
			log.Fatal(err)
		}
		return
	}
	for _, kind := range []string{"free", "waiting", "permit", "waiting-permit"} {
		functions, err := count(kind)
		if err != nil {
			log.Fatal(err)
		}
		if *list == kind {
			fmt.Println(strings.Join(functions, "\n"))
		}
		if err := report(kind, functions); err != nil {
			log.Fatal(err)
		}
	}
}

// count returns the functions that an acquisition runs, each as "file:line: name".
func count(kind string) ([]string, error) {
	dir, err := os.MkdirTemp("", "path")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	counted, rest := filepath.Join(dir, "counted"), filepath.Join(dir, "rest")
	for _, d := range []string{counted, rest} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	covered := []string{"tests/path", "internal/...", "locker", "session", "fencing", "etcderr", "backoff"}
	run := exec.Command("go", "run", "-cover", "-covermode=atomic", "-coverpkg="+module+strings.Join(covered, ","+module),
		module+"tests/path", "-run", kind, "-out", counted)
	run.Env = append(os.Environ(), "GOCOVERDIR="+rest) // of the rest of the run, until its exit
	run.Stderr = os.Stderr
	if err := run.Run(); err != nil {
		return nil, err
	}
	show := exec.Command("go", "tool", "covdata", "func", "-i="+counted)
	show.Stderr = os.Stderr
	all, err := show.Output()
	if err != nil {
		return nil, err
	}
	var functions []string
	for line := range strings.Lines(string(all)) {
		f := strings.Fields(strings.TrimPrefix(line, module)) // file:line: name percent
		if len(f) == 3 && f[0] != "total" && f[2] != "0.0%" && !strings.HasPrefix(f[0], "tests/") {
			functions = append(functions, f[0]+" "+f[1])
		}
	}
	return functions, nil
}

// engine are the packages that put an entry, wait, hold and release. Not among them are sessions and leases, what sends
// and measures requests, and what users call.
var engine = []string{
	"internal/queue", "internal/calls", "internal/reads", "internal/permits", "internal/inquest", "internal/places",
	"internal/leftovers", "internal/hold", "internal/layout", "internal/txns", "internal/watching", "internal/awaiting",
	"internal/polls", "internal/lines",
}

// report prints how many functions and files there are, in each package and in those of engine together.
func report(kind string, functions []string) error {
	files, in := make(map[string]map[string]bool), make(map[string]int) // of each directory
	for _, function := range functions {
		file, _, _ := strings.Cut(function, ":")
		dir := filepath.Dir(file)
		if files[dir] == nil {
			files[dir] = make(map[string]bool)
		}
		files[dir][file] = true
		in[dir]++
	}
	count, read := 0, 0
	for _, dir := range engine {
		count += in[dir]
		read += len(files[dir])
	}
	short, err := countShort(functions)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d functions in %d files of the engine, %d of them of one statement; of all packages:", kind, count,
		read, short)
	for _, dir := range slices.Sorted(maps.Keys(in)) {
		fmt.Printf(" %s %d/%d", dir, in[dir], len(files[dir]))
	}
	fmt.Println()
	return nil
}

// countShort returns how many functions of the engine have one statement.
func countShort(functions []string) (short int, err error) {
	at := make(map[string]bool) // file:line of those of one statement, in each file that was read
	read := make(map[string]bool)
	set := token.NewFileSet()
	for _, function := range functions {
		file, rest, _ := strings.Cut(function, ":")
		line, _, _ := strings.Cut(rest, ":")
		if !slices.Contains(engine, filepath.Dir(file)) {
			continue
		}
		if !read[file] {
			read[file] = true
			parsed, err := parser.ParseFile(set, file, nil, 0)
			if err != nil {
				return 0, err
			}
			for _, d := range parsed.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && len(f.Body.List) == 1 {
					at[fmt.Sprintf("%s:%d", file, set.Position(f.Pos()).Line)] = true
				}
			}
		}
		if at[file+":"+line] {
			short++
		}
	}
	return short, nil
}
