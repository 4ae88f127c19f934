package main

import (
	"bufio"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"strings"
)

// lines prints how many lines of code this module has behind locker and election: lines with at least one token that is
// no comment, in all files that go list compiles, tests left out.
func lines() error {
	template := `{{if and .Module .Module.Main}}{{range .GoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}{{end}}`
	list := exec.Command("go", "list", "-deps", "-f", template, "./locker", "./election")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list what locker and election import: %w", err)
	}
	var order []string
	of := make(map[string]int)
	total := 0
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		pkg, file, found := strings.Cut(s.Text(), " ")
		if !found {
			continue
		}
		n, err := linesOf(file)
		if err != nil {
			return err
		}
		if _, seen := of[pkg]; !seen {
			order = append(order, pkg)
		}
		of[pkg] += n
		total += n
	}
	for _, pkg := range order {
		fmt.Printf("%6d %s\n", of[pkg], strings.TrimPrefix(pkg, module))
	}
	fmt.Printf("%6d lines of code in %d packages behind locker and election\n", total, len(order))
	return nil
}

// linesOf returns how many lines of a file hold code. A raw string counts with all its lines.
func linesOf(file string) (int, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	set := token.NewFileSet()
	f := set.AddFile(file, set.Base(), len(src))
	var s scanner.Scanner
	s.Init(f, src, nil, 0) // without comments
	code := make(map[int]bool)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(code), nil
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // the scanner's own, at the end of a line
		}
		first := f.Line(pos)
		for line := first; line <= first+strings.Count(literal, "\n"); line++ {
			code[line] = true
		}
	}
}
