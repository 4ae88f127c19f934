//go:build unix && !linux

package main

import "syscall"

// dieWithUs does nothing: only Linux can end a process with its parent.
func dieWithUs(*syscall.SysProcAttr) {}
