package names_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestNamespaceRules(t *testing.T) {
	for ns, want := range map[string]string{
		"":                                      names.DefaultNamespace,
		"billing":                               "billing",
		"a@b":                                   "a@b",
		strings.Repeat("n", names.MaxNamespace): strings.Repeat("n", names.MaxNamespace),
		"a/b":                                   "",
		"@a":                                    "",
		strings.Repeat("n", names.MaxNamespace+1): "",
		"\xff": "",
	} {
		got, err := names.Namespace(ns)
		var bad *holdfast.NameError
		if got != want || (want == "") != errors.As(err, &bad) || bad != nil && (bad.Kind != "namespace" || bad.Name != ns) {
			t.Errorf("%q: %q, %v", ns, got, err)
		}
	}
}

func TestQuoteEscapesAndCuts(t *testing.T) {
	for name, want := range map[string]string{
		"a\nb":                   `"a\nb"`,
		strings.Repeat("x", 128): `"` + strings.Repeat("x", 128) + `"`,
		strings.Repeat("x", 129): `"` + strings.Repeat("x", 128) + `"… (129 bytes)`,
	} {
		if got := names.Quote(name); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestKeyOfTheEpoch(t *testing.T) {
	if got := names.EpochKey("ns"); got != "ns/epoch" {
		t.Error(got)
	}
}
