package names

import (
	"fmt"
	"strings"
)

// Escape returns the name of a claim as it is written in headers, metadata and marks: letters, digits and -._~/:@+
// stand for themselves, any other byte becomes %XX with capital letters.
func Escape(name string) string {
	escaped := 0
	for i := range len(name) {
		if !plain(name[i]) {
			escaped++
		}
	}
	if escaped == 0 {
		return name
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(name) + 2*escaped)
	for i := range len(name) {
		if c := name[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
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
	for i := range len(text) {
		if text[i] != '%' && !plain(text[i]) {
			return "", Quote(text) + " is not an escaped name"
		}
	}
	name = text // as is the rule, and without an allocation
	if strings.Contains(text, "%") {
		var ok bool
		if name, ok = unescape(text); !ok {
			return "", Quote(text) + " is not an escaped name"
		}
	}
	switch {
	case name == "":
		return "", "is empty"
	case len(name) > most:
		return "", fmt.Sprintf("is longer than %d bytes", most)
	}
	return name, ""
}

func unescape(text string) (name string, ok bool) {
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		if i+2 >= len(text) {
			return "", false
		}
		hi, lo := unhex(text[i+1]), unhex(text[i+2])
		if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), true
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("-._~/:@+", c) >= 0
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
