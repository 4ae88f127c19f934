package fencing

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/names"
)

// This file is the text of a claim in a header of HTTP or the metadata of gRPC:
// two fields, one for the name and one for the token.

// maxEscaped is the longest text of a name.
const maxEscaped = 3 * MaxName

// EscapeName writes a name with the characters that headers, metadata, URLs and
// logs leave alone: letters, digits and -._~/:@+ stand for themselves, every
// other byte is written as %XX, with capital letters. A name has exactly one
// such text. The token's text is [Token.String].
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

// UnescapeName reads what [EscapeName] writes, and nothing else: what is escaped
// without need, or in small letters, is refused too. So is a name that is empty
// or longer than [MaxName]. The error is a *[ClaimError].
func UnescapeName(text string) (string, error) {
	if len(text) > maxEscaped {
		return "", &ClaimError{"name", fmt.Sprintf("is longer than %d bytes", maxEscaped), nil}
	}
	name := text
	if strings.IndexByte(text, '%') >= 0 {
		var b strings.Builder
		b.Grow(len(text))
		for i := 0; i < len(text); i++ {
			c := text[i]
			if c != '%' {
				if !plain(c) {
					return "", badName(text)
				}
				b.WriteByte(c)
				continue
			}
			if i+2 >= len(text) {
				return "", badName(text)
			}
			hi, lo := unhex(text[i+1]), unhex(text[i+2])
			if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
				return "", badName(text)
			}
			b.WriteByte(byte(hi<<4 | lo))
			i += 2
		}
		name = b.String()
	} else {
		for i := range len(text) {
			if !plain(text[i]) {
				return "", badName(text)
			}
		}
	}
	switch {
	case name == "":
		return "", &ClaimError{"name", "is empty", nil}
	case len(name) > MaxName:
		return "", &ClaimError{"name", fmt.Sprintf("is longer than %d bytes", MaxName), nil}
	}
	return name, nil
}

func badName(text string) error {
	return &ClaimError{"name", fmt.Sprintf("%s is not an escaped name", names.Quote(text)), nil}
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

// ParseClaim reads a claim from the values of its two fields, as many as have
// arrived. present is false only if there was no value in either: that alone is
// "no claim". One field without the other, a field that came twice, and
// anything that is not exactly what [EscapeName] and [Token.String] write is
// present and an error that Is [ErrBadClaim] — a token of zero Is [ErrNoToken]
// besides, so decide on present, not on that.
func ParseClaim(names, tokens []string) (c Claim, present bool, err error) {
	if len(names) == 0 && len(tokens) == 0 {
		return Claim{}, false, nil
	}
	text, err := only("name", names)
	if err != nil {
		return Claim{}, true, err
	}
	if c.Name, err = UnescapeName(text); err != nil {
		return Claim{}, true, err
	}
	if text, err = only("token", tokens); err != nil {
		return Claim{}, true, err
	}
	if c.Token, err = ParseToken(text); err != nil {
		return Claim{}, true, &ClaimError{Part: "token", Err: err}
	}
	return c, true, nil
}

var errAbsent = errors.New("is missing while the other part is there")

// only returns the one value of a field. Of two it would be anybody's choice
// which one the next hop believes.
func only(part string, values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", &ClaimError{Part: part, Err: errAbsent}
	case 1:
		return values[0], nil
	}
	return "", &ClaimError{part, fmt.Sprintf("was sent %d times", len(values)), nil}
}
