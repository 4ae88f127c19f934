package admin_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

// watch runs a Watch and returns what it told so far as "what owner waiting".
func watch(t *testing.T, events iter.Seq2[admin.Event, error]) (told func() string) {
	t.Helper()
	var got []string
	next := make(chan string, 10_000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev, err := range events {
			if err != nil {
				next <- "error: " + err.Error()
				return
			}
			next <- fmt.Sprintf("%s %s %d", ev.What, ev.Entry.Owner, ev.Waiting)
		}
	}()
	t.Cleanup(func() { <-done })
	return func() string {
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		got = got[:0]
		for len(next) > 0 {
			got = append(got, <-next)
		}
		return strings.Join(got, ", ")
	}
}

func expect(t *testing.T, told func() string, want string) {
	t.Helper()
	if got := told(); got != want {
		t.Errorf("told %q\nwant %q", got, want)
	}
}

func TestEventsMissNothingWhileTheyAreInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		interrupt func(srv *etcdfake.Server, link *etcdfake.Link)
		compact   bool
		want      string
	}{
		"canceled by etcd": {
			interrupt: func(srv *etcdfake.Server, _ *etcdfake.Link) { srv.CancelWatches(errors.New("no leader")) },
			want:      "released a 1, acquired b 1, queued c 2, lost c 1",
		},
		"cut off": {
			interrupt: func(_ *etcdfake.Server, link *etcdfake.Link) { link.Cut(); time.AfterFunc(10*time.Second, link.Heal) },
			want:      "released a 1, acquired b 1, queued c 2, lost c 1",
		},
		"silent": { // as on a member that hangs
			interrupt: func(_ *etcdfake.Server, link *etcdfake.Link) {
				link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					if c.Request == nil { // an event
						return etcdfake.Fate{Reply: time.Hour}
					}
					return etcdfake.Fate{}
				})
				time.AfterFunc(10*time.Second, func() { link.Plan(nil) })
			},
			want: "released a 1, acquired b 1, queued c 2, lost c 1",
		},
		"cut off across a compaction": {
			interrupt: func(_ *etcdfake.Server, link *etcdfake.Link) { link.Cut(); time.AfterFunc(10*time.Second, link.Heal) },
			compact:   true,
			want:      "gone a 1, acquired b 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				srv := etcdfake.New(etcdfake.Options{})
				t.Cleanup(srv.Close)
				link := srv.Link()
				adm := admin.New(link.Client(), admin.Options{})
				a, _ := newSession(t, srv, "a")
				b, _ := newSession(t, srv, "b")
				d, _ := newSession(t, srv, "d")
				lk, _ := queueUp(t, "x", a, b, d)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				told := watch(t, adm.Events(ctx, holdfast.KindLock, "x"))
				expect(t, told, "queued a 0, queued b 1, queued d 2, acquired a 2")
				c.interrupt(srv, link)
				if err := lk.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				revoked(t, srv, "x", "c") // queued and gone before the watch is there again
				if c.compact {
					srv.Compact()
				}
				time.Sleep(35 * time.Second)
				expect(t, told, c.want)
				srv.Revoke(d.Lease())
				expect(t, told, "lost d 0, queued d 1")
				cancel()
				expect(t, told, "error: context canceled")
			})
		})
	}
}

// revoked puts an entry of a client with that owner, and revokes its lease.
func revoked(t *testing.T, srv *etcdfake.Server, lock, owner string) {
	t.Helper()
	cli := srv.Client(t)
	grant, err := cli.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	on, id := clientv3.WithLease(grant.ID), fmt.Sprintf("%x", int64(grant.ID))
	value := fmt.Sprintf(`{"v":2,"owner":%q,"queued_at":"2026-01-31T12:00:00Z"}`, owner)
	_, err = cli.Txn(t.Context()).Then(
		clientv3.OpPut("holdfast/session/"+id, "{}", on),
		clientv3.OpPut("holdfast/lock/"+lock+"/@/"+id+"-AAAAAAAAAAAAAAAA", value, on),
		clientv3.OpPut("holdfast/lock/"+lock+"/@claim/"+id+"-AAAAAAAAAAAAAAAA", "{}"),
	).Commit()
	if err != nil {
		t.Fatal(err)
	}
	srv.Revoke(grant.ID)
}
