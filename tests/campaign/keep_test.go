//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// heldFrom returns a record in which processes held a lock one after the other: each from its time on for two seconds.
func heldFrom(begins ...time.Duration) *recorded {
	rec := &recorded{Seed: 5, Round: 3, Etcd: "3.7.3", Record: &oracle.Record{
		Leases: make(map[clientv3.LeaseID]oracle.Lease), Fast: true,
	}}
	part := oracle.LockPart("x", false)
	revision := int64(1)
	change := func(at time.Duration, kv, prev *mvccpb.KeyValue) {
		revision++
		kv.ModRevision = revision
		if prev == nil {
			kv.CreateRevision = revision
		}
		rec.Record.Changes = append(rec.Record.Changes, oracle.Change{
			Revision: revision, After: at - time.Millisecond, Before: at, Deleted: prev != nil, Kv: kv, Prev: prev,
		})
	}
	for i, from := range begins {
		who := fmt.Sprintf("process %d", i)
		key := fmt.Sprintf("%s%x-ABCDEFGHIJKLMNOP", part.Prefix, i+1)
		put := &mvccpb.KeyValue{Key: []byte(key), Value: fmt.Appendf(nil, `{"owner":"%s"}`, who), Lease: int64(i + 1)}
		change(from, put, nil)
		rec.Record.Holds = append(rec.Record.Holds, &oracle.Hold{
			Who: who, Process: who, Parts: []oracle.Part{part}, Key: key, Lease: clientv3.LeaseID(i + 1),
			Token: holdfast.Token(revision), AcquiredAt: revision, Granted: from + time.Millisecond,
			First: from + 2*time.Millisecond, Last: from + 2*time.Second, Ended: from + 2*time.Second,
			Unlocked: from + 2100*time.Millisecond,
		})
		change(from+2050*time.Millisecond, &mvccpb.KeyValue{Key: put.Key}, put)
	}
	return rec
}

func TestRecordOfABrokenPromiseIsKeptAndJudgedAgain(t *testing.T) {
	rec := heldFrom(10*time.Second, 11*time.Second) // the second holds beside the first
	if rec.judge(); len(rec.violations) == 0 {
		t.Fatal("two held, and the oracle says nothing")
	}
	logs := t.TempDir()
	if err := os.WriteFile(filepath.Join(logs, "process0.log"), []byte("a line"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	out := t.TempDir()
	c := &campaign{options: options{out: out, progress: &said}, summary: &summary{Etcd: "3.7.3"}}
	if err := c.keep(&round{logs: logs}, rec); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(out, "seed5-round3-etcd3.7.3")
	if want := "go run ./tests/campaign -judge " + filepath.Join(dir, recordFile); !strings.Contains(said.String(), want) {
		t.Errorf("it said %q without %q", said.String(), want)
	}
	for file, want := range map[string]string{
		"timeline.txt": "VIOLATION: " + rec.violations[0], "timeline.html": `class="bad"`, "logs/process0.log": "a line",
	} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s is without %q: %v", file, want, err)
		}
	}
	var again, errors strings.Builder
	code := command([]string{"-judge", filepath.Join(dir, recordFile)}, &again, &errors)
	if code != violated || errors.Len() > 0 {
		t.Errorf("judged again: exit code %d, %s", code, errors.String())
	}
	for _, v := range rec.violations {
		if !strings.Contains(again.String(), v) {
			t.Errorf("judged again, it is without %q:\n%s", v, again.String())
		}
	}
}

func TestRecordWithoutAViolationIsFine(t *testing.T) {
	rec := heldFrom(10*time.Second, 15*time.Second)
	file := filepath.Join(t.TempDir(), recordFile)
	if err := rec.store(file); err != nil {
		t.Fatal(err)
	}
	var out, errors strings.Builder
	if code := command([]string{"-judge", file}, &out, &errors); code != fine {
		t.Errorf("exit code %d: %s%s", code, out.String(), errors.String())
	}
}

func TestArgumentsThatCannotWorkAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"more"}, {"-workers", "1"}, {"-round", "1ms"}, {"-duration", "0s"}, {"-judge", "/nothing"}, {"-nothing"},
		{"-members", "2"},
		{"-endpoints", "127.0.0.1:1", "-namespace", "a/"}, {"-endpoints", "127.0.0.1:1", "-sure"},
	} {
		var out, errors strings.Builder
		if code := command(args, &out, &errors); code != unusable || errors.Len() == 0 {
			t.Errorf("%v: exit code %d, %q", args, code, errors.String())
		}
	}
}
