//go:build linux

package cmd

import (
	"debug/buildinfo"
	"os/exec"
	"strings"
	"testing"
)

func TestBinaryLinksNoServer(t *testing.T) {
	t.Parallel()
	readSources()
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range info.Deps {
		for _, never := range []string{"go.etcd.io/etcd/server", "go.etcd.io/raft", "go.etcd.io/bbolt", "testing"} {
			if strings.HasPrefix(dep.Path, never) {
				t.Errorf("it links %s", dep.Path)
			}
		}
	}
}

// Each command's help has examples, and only flags that exist.
func TestHelpOfEachCommandHasExamplesAndFitsATerminal(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"ls", "show", "watch", "run", "elect", "kick", "check", "epoch"} {
		help := holdfast(t, nil, "help", command).exits(0).stdout.String()
		_, rest, ok := strings.Cut(help, "\nExamples:\n")
		examples, _, _ := strings.Cut(rest, "\nFlags:\n")
		if n := strings.Count(examples, "holdfast "+command); !ok || n < 2 {
			t.Errorf("help %s has %d examples", command, n)
		}
		for line := range strings.Lines(help) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 110 {
				t.Errorf("help %s: %d columns: %s", command, n, line)
			}
			if strings.Count(line, "(default ") > 1 {
				t.Errorf("help %s: two defaults: %s", command, line)
			}
		}
		for line := range strings.Lines(examples) {
			if !strings.HasPrefix(strings.TrimSpace(line), "holdfast ") {
				continue
			}
			// With --help behind the flags nothing runs, and an unknown flag is an error.
			own, _, _ := strings.Cut(strings.TrimSpace(line), " -- ")
			own, _, _ = strings.Cut(own, " | ")
			own, _, _ = strings.Cut(own, " # ")
			shellCommand := exec.Command("sh", "-c", program+strings.TrimPrefix(own, "holdfast")+" --help")
			begin(t, shellCommand).exits(0)
		}
	}
}
