package main

import "syscall"

// dieWithUs has the kernel kill the command when holdfast is killed.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
