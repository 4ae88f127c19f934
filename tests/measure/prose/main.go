// Command prose counts how this module is written:
//
//	go run ./tests/measure/prose
//
// For each package, for those behind a lock, and for all, tests left out: the words of comments inside function bodies
// for each 100 lines of code, and how many of 1,000 comment words are "that" or "which", "one" or "ones" as a pronoun,
// contractions, and "for example" or "e.g.". Then the words of the Markdown in git.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

// count is what a package, or all of them, have.
type count struct{ lines, inside, words, relative, ones, contracted, examples int }

func (c *count) add(o count) {
	c.lines += o.lines
	c.inside += o.inside
	c.words += o.words
	c.relative += o.relative
	c.ones += o.ones
	c.contracted += o.contracted
	c.examples += o.examples
}

func (c count) print(name string) {
	of := func(n int) float64 { return 1000 * float64(n) / float64(max(1, c.words)) }
	fmt.Printf("%7d %7.0f %10.0f %6.1f %6.1f %6.1f  %s\n", c.lines, 100*float64(c.inside)/float64(max(1, c.lines)),
		of(c.relative), of(c.ones), of(c.contracted), of(c.examples), name)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func run() error {
	files, err := tracked("*.go", "*.md")
	if err != nil {
		return err
	}
	linked, err := behindLocks()
	if err != nil {
		return err
	}
	packages, documents := make(map[string]count), make(map[string]int)
	var behind, all count
	total := 0
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		switch dir := path.Dir(file); {
		case strings.HasSuffix(file, ".md"):
			documents[file] = len(strings.Fields(string(src)))
			total += documents[file]
		case strings.HasSuffix(file, "_test.go") || strings.HasPrefix(dir, "tests/") || strings.Contains(dir, "testkit"):
		default:
			c, err := countFile(file, src)
			if err != nil {
				return err
			}
			p := packages[dir]
			p.add(c)
			packages[dir] = p
			if all.add(c); linked[dir] {
				behind.add(c)
			}
		}
	}
	fmt.Println("  lines  inside that/which   ones  don't   e.g.: " +
		"words inside bodies per 100 lines of code; per 1,000 words of comments")
	for _, dir := range sorted(packages) {
		packages[dir].print(dir)
	}
	behind.print("behind locker and election")
	all.print("all")
	fmt.Println("\n  words  Markdown")
	for _, file := range sorted(documents) {
		fmt.Printf("%7d  %s\n", documents[file], file)
	}
	fmt.Printf("%7d  all\n", total)
	return nil
}

func sorted[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// behindLocks returns the directories of what a program with a lock or an election links of this module.
func behindLocks() (map[string]bool, error) {
	const module = "github.com/holdfast-go/holdfast"
	out, err := exec.Command("go", "list", "-deps", module+"/locker", module+"/election").Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages behind a lock: %w", err)
	}
	dirs := make(map[string]bool)
	for name := range strings.FieldsSeq(string(out)) {
		if dir, ok := strings.CutPrefix(name+"/", module+"/"); ok {
			dirs[path.Clean(dir)] = true
		}
	}
	return dirs, nil
}

// tracked lists the files that git tracks.
func tracked(patterns ...string) ([]string, error) {
	out, err := exec.Command("git", append([]string{"ls-files", "-z"}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the tracked files: %w", err)
	}
	return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00"), nil
}

// countFile counts the lines with code and the words of comments of a file.
func countFile(name string, src []byte) (c count, err error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, src, parser.ParseComments)
	if err != nil {
		return c, err
	}
	c.lines = codeLines(string(src), set, f)
	for _, group := range f.Comments {
		words := strings.Fields(group.Text())
		c.words += len(words)
		for i, w := range words {
			c.countWord(plain(w), plain(append(words, "", "")[i+1]))
		}
		if inBody(f, group) {
			c.inside += len(words)
		}
	}
	return c, nil
}

var (
	contraction = regexp.MustCompile(`^([a-z]+n't|(it|that|there|here|what|who|let)'s|[a-z]+'(re|ve|ll|d|m))$`)
	// With a noun behind it, one is a number: one key, one more key.
	beforeNoun = regexp.MustCompile(`^[a-z]`)
	// Behind it, one is a pronoun.
	endsOne = []string{
		"", "a", "ahead", "and", "as", "at", "before", "behind", "by", "for", "from", "has", "have", "if", "in", "is",
		"it", "of", "on", "or", "that", "the", "this", "to", "under", "which", "who", "whose", "will", "with", "without",
	}
)

// plain is a word without what stands around it, in lower case. It keeps the point that ends a sentence.
func plain(word string) string {
	return strings.ToLower(strings.Trim(word, `,:;()"[]`))
}

// countWord counts a word, next being the word behind it.
func (c *count) countWord(word, next string) {
	ends := strings.HasSuffix(word, ".")
	switch word = strings.TrimSuffix(word, "."); {
	case word == "that", word == "which":
		c.relative++
	case word == "ones", word == "one" && (ends || !beforeNoun.MatchString(next) || slices.Contains(endsOne, next)):
		c.ones++
	case word == "e.g", word == "for" && strings.TrimSuffix(next, ".") == "example":
		c.examples++
	case contraction.MatchString(word):
		c.contracted++
	}
}

// inBody reports whether a comment stands inside the body of a function.
func inBody(f *ast.File, group *ast.CommentGroup) bool {
	return slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Body != nil && fn.Body.Pos() < group.Pos() && group.End() < fn.Body.End()
	})
}

// codeLines counts the lines that are neither blank nor part of a comment alone.
func codeLines(src string, set *token.FileSet, f *ast.File) int {
	comment := make(map[int]bool)
	for _, group := range f.Comments {
		for _, c := range group.List {
			for line := set.Position(c.Pos()).Line; line <= set.Position(c.End()).Line; line++ {
				comment[line] = true
			}
		}
	}
	n := 0
	for i, line := range strings.Split(src, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !(comment[i+1] && strings.HasPrefix(line, "//")) {
			n++
		}
	}
	return n
}
