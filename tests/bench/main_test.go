package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestCommandRewritesOnlyTheFiguresOfTheDocument(t *testing.T) {
	dir := t.TempDir()
	doc, svg := filepath.Join(dir, "performance.md"), filepath.Join(dir, "chart.svg")
	if err := os.WriteFile(doc, []byte("before\n"+generatedBegin+"old figures\n"+generatedEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	args := []string{"-time", "2ms", "-rounds", "2", "-run", "members=1/(trylock|onesession.*sessions|floor/put)$|overhead", "-markdown", doc, "-svg", svg}
	if err := command(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text := mustRead(t, doc)
	if !strings.HasPrefix(text, "before\n"+generatedBegin) || !strings.HasSuffix(text, generatedEnd+"after\n") || strings.Contains(text, "old figures") {
		t.Errorf("the document around the figures was not kept, or the figures were:\n%s", text)
	}
	time := `[\d.]+ (ms|µs|ns) \([\d.]+–[\d.]+\)`
	for _, want := range []string{
		`\n\| 1 \| [^|]+trylock[^|]+ \| ` + time + ` \| ` + time + ` \| ` + time + ` \| [\d.]+ \(`,
		`\n\| 1 \| [^|]+floor/put[^|]+ \| – \| – \| ` + time + ` \| – \| – \|\n`,
		`\n\| none \| [^|]+overhead[^|]+ \| ` + time + `, \d+ allocations \|`,
		`\(chart\.svg\)`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if drawn := texts(t, mustRead(t, svg)); !drawn["TryLock, refused"] || !drawn["64 goroutines / 64 sessions"] {
		t.Errorf("the chart shows %v", drawn)
	}
}

func TestRunFlagWritesNoFilesByDefault(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := command(t.Context(), []string{"-time", "1ms", "-rounds", "1", "-run", "overhead"}, io.Discard); err != nil {
		t.Error(err)
	}
	if files, _ := os.ReadDir("."); len(files) > 0 {
		t.Errorf("written: %v", files)
	}
}

func TestCommandRejectsInvalidArguments(t *testing.T) {
	for _, args := range [][]string{{"-run", "no such subject"}, {"-run", "("}, {"-rounds", "0"}, {"-time", "-1s"}, {"handover"}} {
		if err := command(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestSubjectsHaveUniqueNamesAndDescriptions(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range subjects() {
		if seen[s.name] || s.what == "" || len(s.sides()) == 0 || len(s.short) > 36 {
			t.Errorf("subject %q", s.name)
		}
		seen[s.name] = true
	}
}

// An error in a goroutine of a side ends the operation that waits for it.
func TestContenderErrorEndsTheMeasurement(t *testing.T) {
	etcds := make(stores)
	failed := errors.New("failed")
	turns := 0
	holds := make(chan struct{}, 1)
	sub := subject{name: "failing", alone: true, holdfast: func(e *env) (op, error) {
		return takeTurns(e, []contender{func(context.Context) (func(context.Context) error, error) {
			holds <- struct{}{}
			if turns++; turns == 5 {
				return nil, failed
			}
			return func(context.Context) error { <-holds; return nil }, nil
		}})
	}}
	if _, err := (plan{rounds: 9, time: 9}).measure(etcds, sub, 0); !errors.Is(err, failed) {
		t.Error(err)
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

// texts are all texts of an SVG, which must be well-formed, with its numbers.
func texts(t *testing.T, svg string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := dec.Token()
		if err == io.EOF {
			return all
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.CharData:
			all[string(token)] = true
		case xml.StartElement:
			for _, a := range token.Attr {
				switch a.Name.Local {
				case "x", "y", "x1", "x2", "y1", "y2", "width", "height":
					v, err := strconv.ParseFloat(a.Value, 64)
					if err != nil || v < 0 || v > 1e4 || math.IsNaN(v) {
						t.Errorf("<%s %s=%q>", token.Name.Local, a.Name.Local, a.Value)
					}
				}
			}
		}
	}
}
