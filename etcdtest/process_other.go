//go:build !linux

package etcdtest

import "errors"

func startProcess(string, spec) (member, error) {
	return nil, errors.New("Options.Processes works on Linux only")
}
