package sqlfence_test

import (
	"testing"

	"go.uber.org/goleak"
)

// withServers stops the database servers before goleak looks.
type withServers struct{ *testing.M }

func (m withServers) Run() int {
	defer stopServers()
	return m.M.Run()
}

func TestMain(m *testing.M) {
	beChild() // in a process that a test has started; that is all it does
	goleak.VerifyTestMain(withServers{m})
}
