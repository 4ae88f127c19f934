package fencing_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fencing"
)

func TestEveryNameHasOneText(t *testing.T) {
	var all strings.Builder
	for b := range 256 {
		all.WriteByte(byte(b))
	}
	for name, text := range map[string]string{
		"billing/job-7": "billing/job-7",
		"/legacy":       "/legacy",
		"a b":           "a%20b",
		"100%":          "100%25",
		"é":             "%C3%A9",
		all.String():    fencing.EscapeName(all.String()),
	} {
		got := fencing.EscapeName(name)
		if got != text {
			t.Errorf("%q is written %q, want %q", name, got, text)
		}
		if back, err := fencing.UnescapeName(got); back != name || err != nil {
			t.Errorf("%q comes back as %q, %v", name, back, err)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"billing/job-7", "a b", "%", "%2", "%61", "%C3%A9", "\x00", "ä", "", "%%25"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if text := fencing.EscapeName(s); s != "" && len(s) <= fencing.MaxName {
			if back, err := fencing.UnescapeName(text); back != s || err != nil {
				t.Errorf("name %q, written %q, read %q, %v", s, text, back, err)
			}
			for _, c := range []byte(text) {
				if c <= ' ' || c >= 0x7f || c == ',' || c == ';' || c == '"' {
					t.Errorf("name %q is written %q, which is not safe in a header", s, text)
				}
			}
		}
		name, err := fencing.UnescapeName(s)
		switch {
		case err == nil && fencing.EscapeName(name) != s:
			t.Errorf("text %q is read as %q, which is written %q", s, name, fencing.EscapeName(name))
		case err != nil && (!errors.Is(err, fencing.ErrBadClaim) || name != ""):
			t.Errorf("text %q: %q, %v", s, name, err)
		}
	})
}

func TestLettersDigitsAndSomeMarksStandForThemselves(t *testing.T) {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/:@+"
	for b := range 256 {
		name := string([]byte{byte(b)})
		want := fmt.Sprintf("%%%02X", b)
		if strings.Contains(plain, name) {
			want = name
		}
		if got := fencing.EscapeName(name); got != want {
			t.Errorf("byte %#x is written %q, want %q", b, got, want)
		}
	}
	for _, text := range []string{"%", "%4", "a%2", "%zz", "%2", "%41", "a b"} {
		var claim *fencing.ClaimError
		if name, err := fencing.UnescapeName(text); name != "" || !errors.As(err, &claim) ||
			!strings.Contains(claim.Reason, "is not an escaped name") {
			t.Errorf("%q is read as %q, %v", text, name, err)
		}
	}
}
