package names

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
)

func TestNamesAndPrefixes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, name, prefix string // what the errors say; empty: valid
	}{
		{"", "is empty", "is empty"},
		{"x", "", ""},
		{"a/b", "", ""},
		{"a//b", "has an empty segment", ""},
		{"/a", "has an empty segment", ""},
		{"a/", "has an empty segment", ""},
		{"a/@b", "reserved", ""},
		{"a@/b", "", ""},
		{strings.Repeat("x", maxLength), "", ""},
		{strings.Repeat("x", maxLength+1), "is longer than 512 bytes", "is longer than 512 bytes"},
	} {
		for what, got := range map[string]struct {
			err  error
			want string
		}{"name": {Check(holdfast.KindLock, c.text), c.name}, "prefix": {CheckPrefix(holdfast.KindLock, c.text), c.prefix}} {
			text := ""
			if got.err != nil {
				text = got.err.Error()
			}
			if (got.want == "") != (text == "") || !strings.Contains(text, got.want) {
				t.Errorf("%s %.20q: %v, want %q", what, c.text, got.err, got.want)
			}
		}
	}
}
