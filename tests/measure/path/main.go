// Command path counts the functions that one acquisition runs, and the files and packages that they are in: what you go
// through if you follow it. It counts twice, from the call of Lock to its return, and with the Unlock, and it says how
// many frames are on the stack from the call to its request.
//
//	go run ./tests/measure/path
//	go run ./tests/measure/path -list waiting
//	go run ./tests/measure/path -lines
//
// With -lines it counts the lines of code that a program gets which imports locker and election, by package.
//
// It runs itself with coverage, on an etcd in memory, which is not counted; all other packages of the module are. The
// session has acquired before: what it does only once is not counted. A call that waits does so behind keys that a bare
// client has put and deletes. What the session does meanwhile on its own goroutines is counted; as a rule that is
// nothing. A function of one statement says what something is called; how many of them there are is said, too.
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
	list := flag.String("list", "", "print the functions of one, with its release: free, waiting, permit, waiting-permit")
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
	fmt.Println("functions / files / packages      Lock        with Unlock  of one statement  frames to the request")
	var details []string
	for _, kind := range []string{"free", "waiting", "permit", "waiting-permit"} {
		p, err := count(kind)
		if err != nil {
			log.Fatal(err)
		}
		short, err := countShort(p.unlock)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-28s %-15s %-15s %8d %17s\n", kind, sum(p.lock), sum(p.unlock), short, p.depth)
		details = append(details, kind+", with its release:"+byPackage(p.unlock))
		if *list == kind {
			details = append(details, p.unlock...)
		}
	}
	fmt.Println(strings.Join(details, "\n"))
}

// path is what an acquisition runs: functions, each as "file:line: name".
type path struct {
	lock, unlock []string // before the call returns; with the release as well
	depth        string   // frames from the call to its request
}

// count runs an acquisition of a kind.
func count(kind string) (p path, err error) {
	dir, err := os.MkdirTemp("", "path")
	if err != nil {
		return p, err
	}
	defer os.RemoveAll(dir)
	lock, unlock, rest := filepath.Join(dir, "lock"), filepath.Join(dir, "unlock"), filepath.Join(dir, "rest")
	for _, d := range []string{lock, unlock, rest} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return p, err
		}
	}
	run := exec.Command("go", "run", "-cover", "-covermode=atomic", "-coverpkg="+module+"...", module+"tests/measure/path",
		"-run", kind, "-out", dir)
	run.Env = append(os.Environ(), "GOCOVERDIR="+rest) // of the rest of the run, until its exit
	if said, err := run.CombinedOutput(); err != nil { // it warns of each package that it does not import
		return p, fmt.Errorf("%w\n%s", err, said)
	}
	if p.lock, err = functionsIn(lock); err != nil {
		return p, err
	}
	if p.unlock, err = functionsIn(unlock); err != nil {
		return p, err
	}
	depth, err := os.ReadFile(filepath.Join(dir, "depth"))
	p.depth = string(depth)
	return p, err
}

// functionsIn reads which functions ran, by the coverage that was written to dir.
func functionsIn(dir string) (functions []string, err error) {
	show := exec.Command("go", "tool", "covdata", "func", "-i="+dir)
	show.Stderr = os.Stderr
	all, err := show.Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(all)) {
		f := strings.Fields(strings.TrimPrefix(line, module)) // file:line: name percent
		if len(f) != 3 || f[0] == "total" || f[2] == "0.0%" {
			continue
		}
		if !strings.HasPrefix(f[0], "tests/") && !strings.HasPrefix(f[0], "etcdfake/") {
			functions = append(functions, f[0]+" "+f[1])
		}
	}
	return functions, nil
}

// inPackages counts the functions in each package, and returns the files that they are in.
func inPackages(functions []string) (in map[string]int, files map[string]map[string]bool) {
	in, files = make(map[string]int), make(map[string]map[string]bool)
	for _, function := range functions {
		file, _, _ := strings.Cut(function, ":")
		dir := filepath.Dir(file)
		if files[dir] == nil {
			files[dir] = make(map[string]bool)
		}
		files[dir][file] = true
		in[dir]++
	}
	return in, files
}

// sum says how many functions there are, in how many files of how many packages.
func sum(functions []string) string {
	in, files := inPackages(functions)
	read := 0
	for _, of := range files {
		read += len(of)
	}
	return fmt.Sprintf("%d / %d / %d", len(functions), read, len(in))
}

// byPackage says how many functions and files there are in each package.
func byPackage(functions []string) string {
	in, files := inPackages(functions)
	var b strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(in)) {
		fmt.Fprintf(&b, " %s %d/%d", dir, in[dir], len(files[dir]))
	}
	return b.String()
}

// countShort returns how many functions have one statement.
func countShort(functions []string) (short int, err error) {
	at := make(map[string]bool) // file:line of those of one statement, in each file that was read
	read := make(map[string]bool)
	set := token.NewFileSet()
	for _, function := range functions {
		file, rest, _ := strings.Cut(function, ":")
		line, _, _ := strings.Cut(rest, ":")
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
