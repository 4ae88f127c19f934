//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// child is a command that holdfast runs, in a process group of its own.
type child struct {
	pid      int
	terminal bool // the group began as the foreground group of our terminal
	ended    chan syscall.WaitStatus
	paused   chan os.Signal // Ctrl-Z has stopped the group; or it is to stop us, and then the group must stop, too
}

// lookPath finds the program of a command.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
		return "", &exitError{exitCannotRun, err}
	default:
		return "", &exitError{exitNotFound, err}
	}
}

// startChild starts a command with our stdin, stdout and stderr.
//
// On a terminal, when both stdin and stdout are that, its group becomes the foreground group, so that it may read, and
// Ctrl-C is for it. With one of them redirected the others of our pipeline keep the terminal.
func startChild(path string, argv, env []string) (*child, error) {
	c := &child{ended: make(chan syscall.WaitStatus, 1), paused: make(chan os.Signal, 1)}
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithUs(attr)
	if term.IsTerminal(0) && term.IsTerminal(1) && foreground() {
		attr.Foreground, attr.Ctty, c.terminal = true, 0, true
	} else if session, err := unix.Getsid(0); err == nil && session != syscall.Getpgrp() {
		// Ctrl-Z stops our pipeline, and so must stop the command. The group that leads a session is no job of a shell
		// that would continue it: Ctrl-Z does nothing there.
		signal.Notify(c.paused, syscall.SIGTSTP)
	}
	started := make(chan error)
	go func() { // owned by the reader of ended
		// The kernel ends the child with the thread that has started it. So that thread has to last as long: it runs
		// this goroutine alone, and ends with it.
		runtime.LockOSThread()
		p, err := os.StartProcess(path, argv, &os.ProcAttr{
			Env:   (&exec.Cmd{Env: env}).Environ(), // the last of each name: a program may take the first one
			Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr,
		})
		if err == nil {
			c.pid = p.Pid
			_ = p.Release()
		}
		started <- err
		if err == nil {
			c.wait()
		}
	}()
	err := <-started
	if errors.Is(err, syscall.ENOEXEC) {
		err = fmt.Errorf("%w: a script needs a first line such as #!/bin/sh", err)
	}
	if err != nil {
		signal.Stop(c.paused)
		if c.terminal {
			takeTerminal(syscall.Getpgrp()) // it was given away before the program was looked at
		}
		return nil, &exitError{exitCannotRun, err}
	}
	return c, nil
}

// fromTerminal are the signals by which a terminal stops a group.
var fromTerminal = []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

// wait reports what becomes of the child, and reaps it.
func (c *child) wait() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && status.Stopped():
			switch sig := status.StopSignal(); {
			case !slices.Contains(fromTerminal, sig):
			case c.terminal:
				c.paused <- sig
			default:
				fmt.Fprintf(os.Stderr, "holdfast: %s has stopped the command, which is not in the foreground; the lock is kept\n",
					unix.SignalName(sig))
			}
		default:
			c.ended <- status
			return
		}
	}
}

// signal sends a signal to every process of the child's group. It is no error if there is none any more. One that is
// stopped gets a signal that is to end it when it continues: so it is continued, as timeout(1) does.
func (c *child) signal(sig os.Signal) {
	err := syscall.Kill(-c.pid, sig.(syscall.Signal))
	if errors.Is(err, syscall.EPERM) { // it has called setuid, as sudo does
		fmt.Fprintf(os.Stderr, "holdfast: the command runs as another user, and cannot be sent %v: it goes on\n", sig)
	}
	if isEnding(sig) {
		_ = syscall.Kill(-c.pid, syscall.SIGCONT)
	}
}

func (c *child) terminate() { c.signal(syscall.SIGTERM) }

func (c *child) kill() { c.signal(syscall.SIGKILL) }

// foreground reports whether our process group is the foreground group of the terminal at stdin.
func foreground() bool {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// takeTerminal makes a group the foreground group, also out of the background.
func takeTerminal(group int) {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group)
	signal.Reset(syscall.SIGTTOU)
}

// release ends what startChild has begun, when the child has ended.
func (c *child) release() {
	signal.Stop(c.paused)
	c.giveBack()
}

// giveBack gives the terminal back to our group, if the child's group has it: by now it may be that of another job.
func (c *child) giveBack() {
	if group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err == nil && group == c.pid {
		takeTerminal(syscall.Getpgrp())
	}
}

// pause stops holdfast together with the child, as the shell that has started it expects after Ctrl-Z, and returns
// when the shell continues it. Until then no lease is renewed, so first all of the group is stopped.
func (c *child) pause() {
	c.signal(syscall.SIGSTOP)
	c.giveBack()
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	<-continued // the call above may return before we are stopped
}

// resume continues the child after pause.
func (c *child) resume() {
	if c.terminal && foreground() {
		takeTerminal(c.pid)
	}
	c.signal(syscall.SIGCONT)
}

// codeOf is the exit code that a shell would report.
func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}
