package sqlfence

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// CheckResource reports whether name can name a resource: nil or a
// *holdfast.NameError. A name has 1 to fencing.MaxResource bytes, is valid UTF-8 and
// contains no NUL, which PostgreSQL cannot store. It is taken byte for byte: "A"
// and "a" are two resources, in every dialect.
func CheckResource(name string) error {
	if reason := textReason(name, fencing.MaxResource); reason != "" {
		return &holdfast.NameError{Kind: "resource", Name: name, Reason: reason}
	}
	return nil
}

func textReason(s string, most int) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > most:
		return fmt.Sprintf("is longer than %d bytes", most)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsRune(s, 0):
		return "contains a NUL"
	}
	return ""
}

// 63 bytes: PostgreSQL cuts longer names short, without an error, and two tables
// become one.
var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
	tableName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)
)
