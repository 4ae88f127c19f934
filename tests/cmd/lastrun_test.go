//go:build linux

package cmd

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/etcdtest"
)

const lastRun = "holdfast/lock/x/@run"

// show returns what "holdfast show" prints of lock x.
func show(t *testing.T, srv *etcdtest.Server, args ...string) string {
	t.Helper()
	return holdfast(t, srv.Endpoints(), append([]string{"show", "x"}, args...)...).exits(0).stdout.String()
}

func TestRunThatSucceedsIsRecorded(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	owner := strings.Repeat("a-long-name-", 5)
	holdfast(t, srv.Endpoints(), "run", "x", "--expect", "25h", "--owner", owner, "--", "true").exits(0)
	out := show(t, srv)
	for _, want := range []string{"lock x: free\n  last run  ", "\n            by a-long-", "\n  next run  due by "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("more than 80 columns: %q", line)
		}
	}
	var q struct {
		LastRun *struct {
			At, Due time.Time
			Overdue bool
			Owner   string
			Token   string
		} `json:"last_run"`
	}
	if err := json.Unmarshal([]byte(show(t, srv, "-o", "json")), &q); err != nil || q.LastRun == nil {
		t.Fatalf("%+v, %v", q, err)
	}
	if r := *q.LastRun; r.Due.Sub(r.At) != 25*time.Hour || r.Overdue || r.Owner != owner || r.Token == "" {
		t.Errorf("%+v", r)
	}
	if out := show(t, srv, "--overdue"); out != "" {
		t.Errorf("--overdue says %q", out)
	}

	// Neither a command that fails nor one that is not run at all is recorded.
	before := srv.WaitForKeys(t, lastRun, 1)[0].ModRevision
	holdfast(t, srv.Endpoints(), "run", "x", "--expect", "1h", "--", "sh", "-c", "exit 3").exits(3)
	holdfast(t, srv.Endpoints(), "run", "x", "--", "true").exits(0)
	hold(t, open(t, srv.Client(t), "other"), "x")
	holdfast(t, srv.Endpoints(), "run", "x", "--try", "--quiet", "--expect", "1h", "--", "true").exits(75)
	if kv := srv.WaitForKeys(t, lastRun, 1)[0]; kv.ModRevision != before {
		t.Errorf("recorded: %s", kv.Value)
	}
	if out := show(t, srv); !strings.Contains(out, "held by   other") || !strings.Contains(out, "  next run  due by ") {
		t.Errorf("of a lock that is held:\n%s", out)
	}
}

func TestShowTellsAnOverdueRun(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	overdue := func(want string) {
		t.Helper()
		p := holdfast(t, srv.Endpoints(), "show", "--overdue", "x").exits(1)
		if p.stdout.String() != "" || !strings.Contains(p.stderr.String(), want) {
			t.Errorf("stdout %q, stderr %q", p.stdout, p.stderr)
		}
	}
	overdue("no run was ever recorded")
	holdfast(t, srv.Endpoints(), "run", "x", "--expect", "1ns", "--", "true").exits(0)
	overdue("lock x: overdue since 2")
	if out := show(t, srv); !strings.Contains(out, "  next run  overdue since ") {
		t.Error(out)
	}
	holdfast(t, srv.Endpoints(), "run", "x", "--expect", "1h", "--", "true").exits(0)
	if out := show(t, srv, "--overdue"); out != "" {
		t.Error(out)
	}
}

func TestRunIsNotRecordedBelowThePrefixOfOthers(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	p := holdfast(t, srv.Endpoints(), "run", "--at", "/x", "--expect", "1h", "--", "true").exits(64)
	if !strings.Contains(p.stderr.String(), "without --at") {
		t.Error(p.stderr)
	}
	holdfast(t, srv.Endpoints(), "run", "x", "--expect", "-1h", "--", "true").exits(64)
}
