package names

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// No segment is empty or starts with "@", so the entries of one name are never below the prefix of another.
func TestCheckNameSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("n", maxLength)
	for name, reason := range map[string]string{
		"": "is empty", longest + "n": "is longer than 512 bytes",
		"/": "empty segment", "/a": "empty segment", "a/": "empty segment", "a//b": "empty segment",
		"@": "reserved", "@a/b": "reserved", "a/@": "reserved", "a/@/b": "reserved",
		"a": "", "a/b": "", "a@b/c@": "", " ": "", "ü/\xff\x00": "", longest: "",
	} {
		expectName(t, Check(holdfast.KindLock, name), "lock", name, reason)
	}
}

// etcd's own locks have any prefix.
func TestForeignPrefixMayBeAnythingButEmptyOrLong(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("n", maxLength)
	for prefix, reason := range map[string]string{
		"": "is empty", longest + "n": "is longer than 512 bytes",
		"/": "", "a//b": "", "@/@": "", longest: "",
	} {
		expectName(t, CheckPrefix(holdfast.KindLock, prefix), "lock prefix", prefix, reason)
	}
}

func expectName(t *testing.T, err error, kind, name, reason string) {
	t.Helper()
	var bad *holdfast.NameError
	if reason == "" {
		if err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
	} else if !errors.As(err, &bad) || bad.Kind != kind || bad.Name != name || !strings.Contains(bad.Reason, reason) {
		t.Errorf("%.20q: %v, want %q", name, err, reason)
	}
}
