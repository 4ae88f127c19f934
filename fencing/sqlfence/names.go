package sqlfence

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// checkResource returns a *fencing.ClaimError, with a *holdfast.NameError in it,
// unless name can be stored in every dialect. Names are compared byte for byte.
func checkResource(name string) error {
	if reason := textProblem(name, fencing.MaxResource); reason != "" {
		return &fencing.ClaimError{Part: "resource", Err: &holdfast.NameError{Kind: "resource", Name: name, Reason: reason}}
	}
	return nil
}

func textProblem(s string, limit int) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > limit:
		return fmt.Sprintf("is longer than %d bytes", limit)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsRune(s, 0): // PostgreSQL cannot store it
		return "contains a NUL"
	}
	return ""
}

// At most 63 bytes: PostgreSQL truncates longer names without an error, and two tables
// would become one.
var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
	tableName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)
)
