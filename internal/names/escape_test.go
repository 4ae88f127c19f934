package names_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/names"
)

const most = 512

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
		all.String():    names.Escape(all.String()),
	} {
		got := names.Escape(name)
		if got != text {
			t.Errorf("%q is written %q, want %q", name, got, text)
		}
		if back, bad := names.Unescape(got, most); back != name || bad != "" {
			t.Errorf("%q comes back as %q, %v", name, back, bad)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"billing/job-7", "a b", "%", "%2", "%61", "%C3%A9", "\x00", "ä", "", "%%25"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if text := names.Escape(s); s != "" && len(s) <= most {
			if back, bad := names.Unescape(text, most); back != s || bad != "" {
				t.Errorf("name %q, written %q, read %q, %v", s, text, back, bad)
			}
			for _, c := range []byte(text) {
				if c <= ' ' || c >= 0x7f || c == ',' || c == ';' || c == '"' {
					t.Errorf("name %q is written %q, which is not safe in a header", s, text)
				}
			}
		}
		name, bad := names.Unescape(s, most)
		switch {
		case bad == "" && names.Escape(name) != s:
			t.Errorf("text %q is read as %q, which is written %q", s, name, names.Escape(name))
		case bad != "" && name != "":
			t.Errorf("text %q: %q, %v", s, name, bad)
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
		if got := names.Escape(name); got != want {
			t.Errorf("byte %#x is written %q, want %q", b, got, want)
		}
	}
	for _, text := range []string{"%", "%4", "a%2", "%zz", "%2", "%41", "a b"} {
		if name, bad := names.Unescape(text, most); name != "" || !strings.Contains(bad, "is not an escaped name") {
			t.Errorf("%q is read as %q, %v", text, name, bad)
		}
	}
}
