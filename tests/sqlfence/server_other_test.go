//go:build !linux

package sqlfence_test

import (
	"errors"
	"os/exec"
)

// On other systems the kernel cannot stop a server with the tests, so none is started.
const canServe = false

func (s *server) launch(*exec.Cmd, string) (func() error, error) {
	return nil, errors.New("servers are started on Linux only")
}

func beChild() {}

type logged struct{}

func (*logged) String() string { return "" }
