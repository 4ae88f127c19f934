package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestCommandRewritesOnlyTheFiguresOfTheDocument(t *testing.T) {
	dir := t.TempDir()
	doc, svg := filepath.Join(dir, "performance.md"), filepath.Join(dir, "chart.svg")
	if err := os.WriteFile(doc, []byte("before\n"+generatedBegin+"old figures\n"+generatedEnd+"after\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	args := []string{"-time", "2ms", "-rounds", "2", "-run",
		"members=1/(trylock|onesession.*sessions|floor/put|overhead/cold)$|none/overhead", "-markdown", doc, "-svg", svg}
	if err := command(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text := mustRead(t, doc)
	if !strings.HasPrefix(text, "before\n"+generatedBegin) || !strings.HasSuffix(text, generatedEnd+"after\n") ||
		strings.Contains(text, "old figures") {
		t.Errorf("the text around the figures was changed, or the old figures remain:\n%s", text)
	}
	time := `[\d.]+ (ms|µs|ns)`
	for _, want := range []string{
		`\n\| [^|]+trylock[^|]+ \| 1 \| ` + time + ` \| ` + time + ` \| ` + time + ` \| [\d.]+ \(`,
		`\n\| [^|]+floor/put[^|]+ \| 1 \| – \| – \| ` + time + ` \| – \| – \|\n`,
		`\n\| [^|]+overhead/cold[^|]+ \| 1 \| ` + time + ` \| ` + time + ` \| – \|`,
		`\n\| [^|]+overhead[^|]+ \| none \| ` + time + `, \d+ allocations \|`,
		`\(chart\.svg\)`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if drawn := svgTexts(t, mustRead(t, svg)); !drawn["TryLock, refused"] || !drawn["64 goroutines / 64 sessions"] {
		t.Errorf("the chart shows %v", drawn)
	}
}

func TestRunFlagWritesNoFilesByDefault(t *testing.T) {
	t.Chdir(t.TempDir())
	args := []string{"-time", "1ms", "-rounds", "1", "-run", "none/overhead"}
	if err := command(t.Context(), args, io.Discard); err != nil {
		t.Error(err)
	}
	if files, _ := os.ReadDir("."); len(files) > 0 {
		t.Errorf("files were written: %v", files)
	}
}

func TestCommandRejectsInvalidArguments(t *testing.T) {
	for _, args := range [][]string{{"-run", "no such subject"}, {"-run", "("}, {"-rounds", "0"}, {"-time", "-1s"},
		{"handover"}} {
		if err := command(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

func mustRead(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
