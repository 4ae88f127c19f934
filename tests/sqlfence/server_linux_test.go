package sqlfence_test

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const canServe = true

// launch starts cmd and waits until it has logged ready, if that is not empty. wait returns
// when cmd has exited.
func (s *server) launch(cmd *exec.Cmd, ready string) (wait func() error, err error) {
	log := &logged{ready: ready, seen: make(chan struct{})}
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), "LC_ALL=C", "HOME="+s.dir)
	// In case the server leaves children behind that keep its output open.
	cmd.WaitDelay = 10 * time.Second
	// Its own process group, so that Ctrl-C reaches only the tests, which stop it. If the
	// tests are killed, the kernel does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: s.quickly}
	if s.uid >= 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(s.uid), Gid: uint32(s.gid)}
	}

	started, ended := make(chan error, 1), make(chan struct{})
	var exit error
	go func() { // joined by wait
		defer close(ended)
		// Pdeathsig is sent when the thread that started the process exits, so keep that
		// thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			exit = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-ended
		return nil, err
	}
	if ready != "" {
		select {
		case <-log.seen:
		case <-ended:
			return nil, fail(cmd, errNotReady, log)
		}
	}
	return func() error {
		<-ended
		if exit != nil {
			return fail(cmd, exit, log)
		}
		return nil
	}, nil
}

// logged keeps the output of a process, and searches it for ready.
type logged struct {
	ready string
	seen  chan struct{} // closed when ready was found

	mu    sync.Mutex // protects found and text
	found bool
	text  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() < 1<<20 {
		l.text.Write(p)
	}
	if !l.found && l.ready != "" && strings.Contains(l.text.String(), l.ready) {
		l.found = true
		close(l.seen)
	}
	return len(p), nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
