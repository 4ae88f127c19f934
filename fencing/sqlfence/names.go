package sqlfence

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/fencing"
)

// ArgumentError says which argument or option cannot be used. Nothing was sent.
type ArgumentError struct {
	Argument string // as in the signature or the options struct: "db", "Options.Table"
	Reason   string
}

func (e *ArgumentError) Error() string { return "sqlfence: " + e.Argument + " " + e.Reason }

// ResourceError says why something is not the name of a resource. Nothing was
// sent.
type ResourceError struct {
	Resource string
	Reason   string
}

func (e *ResourceError) Error() string {
	return fmt.Sprintf("sqlfence: resource %s %s", quote(e.Resource), e.Reason)
}

// CheckResource reports whether name can name a resource: nil or a
// *[ResourceError]. A name has 1 to fencing.MaxResource bytes, is valid UTF-8 and
// contains no NUL, which PostgreSQL cannot store. It is taken byte for byte: "A"
// and "a" are two resources, in every dialect.
func CheckResource(name string) error {
	if reason := textReason(name, fencing.MaxResource); reason != "" {
		return &ResourceError{name, reason}
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

// quote renders a name for a message: escaped, and cut where it would drown the
// rest of the line.
func quote(s string) string {
	const most = 128
	if len(s) > most {
		return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}
