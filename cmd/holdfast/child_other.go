//go:build !unix

package main

import (
	"errors"
	"os"
)

// child does not exist here: process groups and SIGTERM are of Unix.
type child struct {
	ended  chan int
	paused chan os.Signal
}

func lookPath(string) (string, error) {
	return "", &exitError{exitCannotRun, errors.New("run and elect need a Unix: they signal process groups")}
}

func startChild(string, []string, []string) (*child, error) { return nil, errors.ErrUnsupported }

func (*child) signal(os.Signal) {}
func (*child) terminate()       {}
func (*child) kill()            {}
func (*child) release()         {}
func (*child) pause()           {}
func (*child) resume()          {}

func codeOf(code int) int { return code }
