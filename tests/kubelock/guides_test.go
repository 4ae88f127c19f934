//go:build kubernetes

package kubelock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/tests/internal/guides"
)

func TestGoInTheREADMECompiles(t *testing.T) {
	guides.Compile(t, "../guides/testdata/root", "contrib/kubelock/README.md")
}
