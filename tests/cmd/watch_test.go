//go:build linux

package cmd

import (
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/etcdtest"
)

func TestWatchPrintsALineForEachEventIntoAPipe(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	lk := hold(t, open(t, srv.Client(t), "first"), "x")
	w := holdfast(t, srv.Endpoints(), "watch", "x")
	w.prints(w.stdout, "acquired  first")
	queue(t, srv, "x", "second")
	w.prints(w.stdout, "queued    second")
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	w.prints(w.stdout, "released  first")
	w.prints(w.stdout, "acquired  second")
	srv.RevokeHolder(t, "holdfast/lock/x/@/")
	w.prints(w.stdout, "lost      second")
	w.signal(syscall.SIGINT)
	w.exits(130)
	for line := range strings.Lines(w.stdout.String()) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 80 || strings.ContainsRune(line, '\x1b') {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

func TestWatchShowsALiveViewOnATerminal(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	hold(t, open(t, srv.Client(t), "first"), "x")
	w := onTerminal(t, srv.Endpoints(), "watch", "x")
	w.prints(w.stdout, "held by   first")
	queue(t, srv, "x", "second")
	w.prints(w.stdout, "waiting   1")
	srv.RevokeHolder(t, "holdfast/lock/x/@/")
	w.prints(w.stdout, "held by   second")
	w.prints(w.stdout, "lost      first")
	w.keys("\x03") // Ctrl-C
	w.exits(130)
	if !strings.Contains(w.stdout.String(), "\x1b[H") {
		t.Errorf("it does not redraw the screen: %q", w.stdout)
	}
}

// Into a pipe each change is a line, as JSON too; on a terminal the names are shown as they are. Ctrl-C ends it.
func TestLsGoesOn(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	sess := open(t, srv.Client(t), "host-1:77")
	lk := hold(t, sess, "billing/a")
	lines := holdfast(t, srv.Endpoints(), "ls", "billing/", "--watch")
	objects := holdfast(t, srv.Endpoints(), "ls", "--watch", "-o", "json")
	w := onTerminal(t, srv.Endpoints(), "ls", "--watch")
	lines.prints(lines.stdout, "by host-1:77 for")
	objects.prints(objects.stdout, `"name":"billing/a"`)
	w.prints(w.stdout, "1 names, 0 wait")

	queue(t, srv, "billing/a", "host-2:1")
	lines.prints(lines.stdout, "1 wait, longest")
	objects.prints(objects.stdout, `"held":true,"waiting":1,"waits_since":"`)
	w.prints(w.stdout, "1 names, 1 wait")

	hold(t, sess, "other")
	objects.prints(objects.stdout, `"name":"other"`)
	w.prints(w.stdout, "2 names, 1 wait")
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	lines.prints(lines.stdout, "by host-2:1 for")
	w.prints(w.stdout, "2 names, 0 wait")
	if strings.Contains(lines.stdout.String(), "other") {
		t.Errorf("a name without the prefix:\n%s", lines.stdout)
	}
	for _, p := range []*process{lines, objects} {
		p.signal(syscall.SIGINT)
		p.exits(130)
	}
	w.keys("\x03")
	w.exits(130)
	holdfast(t, srv.Endpoints(), "ls", "--watch", "--sessions").exits(64)
}
