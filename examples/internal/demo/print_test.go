package demo

import (
	"strings"
	"testing"
)

func TestLiveLinesStayBelow(t *testing.T) {
	var out strings.Builder
	d := &Demo{out: &out, colored: true}
	d.Print(Plain, "first")
	d.Live("a", "b")
	d.Print(Plain, "second")
	d.Live("c")
	d.Live()
	const clear1, clear2 = "\x1b[1A\x1b[J", "\x1b[2A\x1b[J"
	if want := "first\na\nb\n" + clear2 + "second\na\nb\n" + clear2 + "c\n" + clear1; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestNothingIsLiveWithoutATerminal(t *testing.T) {
	var out strings.Builder
	d := &Demo{out: &out}
	d.Live("a")
	d.Print(Plain, "first")
	if out.String() != "first\n" {
		t.Errorf("%q", out.String())
	}
}
