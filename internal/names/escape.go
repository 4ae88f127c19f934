package names

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Escape returns the name of a claim as it is written in headers, metadata and marks: letters, digits and -._~/:@+
// stand for themselves, any other byte becomes %XX with capital letters.
func Escape(name string) string {
	if !strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf || !plain(byte(r)) }) {
		return name // as is the rule, and without an allocation
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Unescape returns the name that Escape wrote as text, or what is wrong with any other text, and with a name that is
// empty or longer than most bytes.
func Unescape(text string, most int) (name, bad string) {
	if len(text) > 3*most {
		return "", fmt.Sprintf("is longer than %d bytes", 3*most)
	}
	name, err := url.PathUnescape(text)
	switch {
	case err != nil || Escape(name) != text: // each name has one text
		return "", Quote(text) + " is not an escaped name"
	case name == "":
		return "", "is empty"
	case len(name) > most:
		return "", fmt.Sprintf("is longer than %d bytes", most)
	}
	return name, ""
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("-._~/:@+", c) >= 0
}
