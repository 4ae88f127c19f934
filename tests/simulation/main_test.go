// Package simulation runs sessions, locks and elections against etcdfake, in schedules whose faults are drawn from a
// seed, in virtual time. README.md says how to run more of them.
package simulation

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
