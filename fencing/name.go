package fencing

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/names"
)

// maxEscaped is the length of the longest escaped name.
const maxEscaped = 3 * MaxName

// EscapeName returns a name as it is written in headers and metadata: letters, digits and -._~/:@+
// stand for themselves, any other byte becomes %XX with capital letters.
func EscapeName(name string) string {
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

// UnescapeName returns the name that [EscapeName] wrote as text. Any other text, and a name that is
// empty or longer than [MaxName], is a *[ClaimError].
func UnescapeName(text string) (string, error) {
	if len(text) > maxEscaped {
		return "", &ClaimError{Part: "name", Reason: fmt.Sprintf("is longer than %d bytes", maxEscaped)}
	}
	for i := range len(text) {
		if text[i] != '%' && !plain(text[i]) {
			return "", badName(text)
		}
	}
	name := text // as is the rule, and without an allocation
	if strings.Contains(text, "%") {
		var ok bool
		if name, ok = unescape(text); !ok {
			return "", badName(text)
		}
	}
	if err := checkName(name); err != nil {
		return "", err
	}
	return name, nil
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

func badName(text string) error {
	return &ClaimError{Part: "name", Reason: names.Quote(text) + " is not an escaped name"}
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
