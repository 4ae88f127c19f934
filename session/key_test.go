package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// openOn starts a session over a link of etcdfake, logs to log, and closes it
// with the test.
func openOn(t *testing.T, link *etcdfake.Link, o session.Options) *session.Session {
	t.Helper()
	o.Clock = session.MonotonicClock()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	sess, err := session.New(t.Context(), link.Client(), &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		link.Heal()
		_ = sess.Close(t.Context()) // may have been closed, or be cut off
	})
	synctest.Wait() // the watch of its key stands
	return sess
}

// newServer is an etcdfake that ends with the test, after the sessions on it.
func newServer(t *testing.T) *etcdfake.Server {
	srv := etcdfake.New(nil)
	t.Cleanup(srv.Close)
	return srv
}

func keyOf(sess *session.Session) string { return lease.Open(sess.Ref()).SessionKey(sess.Lease()) }

func lossOf(t *testing.T, ev session.Event) *holdfast.LostError {
	t.Helper()
	var lost *holdfast.LostError
	if !errors.As(ev.Err, &lost) {
		t.Fatalf("event %v: %v", ev.State, ev.Err)
	}
	return lost
}

func TestSessionKeySaysWhoseItIsAndStandsAsLongAsTheLease(t *testing.T) {
	for name, tc := range map[string]struct {
		opts session.Options
		want map[string]bool // fields of the value beside v
	}{
		"default":   {session.Options{}, map[string]bool{"owner": true, "host": true, "pid": true}},
		"owner":     {session.Options{Owner: "billing-7"}, map[string]bool{"owner": true, "host": true, "pid": true}},
		"anonymous": {session.Options{Anonymous: true}, map[string]bool{}},
		"both":      {session.Options{Anonymous: true, Owner: "billing-7"}, map[string]bool{"owner": true}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				srv := newServer(t)
				link := srv.Link()
				sess := openOn(t, link, tc.opts)
				if want := fmt.Sprintf("holdfast/session/%x", int64(sess.Lease())); keyOf(sess) != want {
					t.Errorf("key %q, want %q", keyOf(sess), want)
				}
				resp, err := link.Client().Get(t.Context(), keyOf(sess))
				if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].Lease != int64(sess.Lease()) {
					t.Fatalf("%v, %v", resp, err)
				}
				held, err := lease.Open(sess.Ref()).Await(t.Context())
				if err != nil || held.Gate() != resp.Kvs[0].ModRevision {
					t.Errorf("gate %d, the key was put at %d: %v", held.Gate(), resp.Kvs[0].ModRevision, err)
				}
				var value map[string]any
				if err := json.Unmarshal(resp.Kvs[0].Value, &value); err != nil || value["v"] != 1.0 {
					t.Fatalf("%s: %v", resp.Kvs[0].Value, err)
				}
				delete(value, "v")
				for field := range tc.want {
					if value[field] == nil {
						t.Errorf("%s lacks %q", resp.Kvs[0].Value, field)
					}
				}
				if len(value) != len(tc.want) || tc.opts.Owner != "" && value["owner"] != tc.opts.Owner {
					t.Errorf("%s", resp.Kvs[0].Value)
				}
				if err := sess.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if left := srv.Keys(""); len(left) != 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		})
	}
}

// Before, this took until the next renewal: up to a third of the TTL.
func TestLeaseRevokedByHandIsToldByTheWatchOfItsKey(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv, events := newServer(t), newRecorder()
		link := srv.Link()
		link.Delay(10 * time.Millisecond)
		sess := openOn(t, link, session.Options{OnStateChange: events.tell})
		time.Sleep(time.Second)
		revoked := time.Now()
		srv.Revoke(sess.Lease())
		lost := lossOf(t, events.next(t, holdfast.Lost))
		// The event travels 10 ms, the put 20.
		if took := time.Since(revoked); lost.Cause != holdfast.CauseRevoked || took != 30*time.Millisecond {
			t.Errorf("told after %v: %v", took, lost)
		}
		if !strings.Contains(lost.Error(), "former etcd leader") {
			t.Errorf("%v", lost)
		}
		events.next(t, holdfast.Connected)
	})
}

func TestSessionKeyDeletedByHandIsPutAgainAndNothingIsLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv, events := newServer(t), newRecorder()
		warned := make(chan string, 10)
		sess := openOn(t, srv.Link(), session.Options{OnStateChange: events.tell, Logger: slog.New(lineHandler(warned))})
		held, err := lease.Open(sess.Ref()).Await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(7 * time.Second)
			gate := held.Gate()
			srv.Delete(keyOf(sess))
			synctest.Wait()
			kvs := srv.Keys(keyOf(sess))
			if len(kvs) != 1 || kvs[0].Lease != int64(sess.Lease()) || held.Gate() != kvs[0].ModRevision || held.Gate() <= gate {
				t.Fatalf("key %v, gate %d after %d", kvs, held.Gate(), gate)
			}
		}
		time.Sleep(time.Minute)
		if held.Check() != nil || len(events) != 0 {
			t.Errorf("%v, %d events", held.Check(), len(events))
		}
		if len(warned) != 3 || !strings.Contains(<-warned, "session key was deleted") {
			t.Errorf("%d warnings, want 3 of the session key", len(warned))
		}
	})
}

// A role that may write below session/ may delete all the time.
func TestSessionKeyThatIsDeletedAgainAndAgainCostsNoStormOfRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := newServer(t)
		link := srv.Link()
		link.Delay(time.Millisecond)
		sess := openOn(t, link, session.Options{})
		lease, before := sess.Lease(), link.Count()
		for range 60_000 {
			srv.Delete(keyOf(sess))
			time.Sleep(time.Millisecond)
		}
		after := link.Count()
		if n := after["Put"] - before["Put"]; n > 600 || sess.Lease() != lease {
			t.Errorf("%d puts in a minute", n)
		}
	})
}

func TestSessionKeyDetachedFromItsLeaseIsAttachedAgainByARenewal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := newServer(t)
		sess := openOn(t, srv.Link(), session.Options{})
		srv.Put(keyOf(sess), "detached")
		time.Sleep(5100 * time.Millisecond)
		synctest.Wait()
		if kvs := srv.Keys(keyOf(sess)); len(kvs) != 1 || kvs[0].Lease != int64(sess.Lease()) {
			t.Errorf("%v", kvs)
		}
	})
}

// A watch on a member that hangs says nothing. The read that confirms each
// renewal finds the key missing, with no RPC more than before.
func TestDeletionThatTheWatchDoesNotTellIsFoundByTheRenewal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		sess := f.open(t, session.Options{})
		synctest.Wait()
		f.set(func(f *fakeEtcd) { f.counts = make(map[string]int); delete(f.keys, keyOf(sess)) })
		time.Sleep(5100 * time.Millisecond)
		synctest.Wait()
		f.set(func(f *fakeEtcd) {
			if kv := f.keys[keyOf(sess)]; kv == nil || sess.Check() != nil {
				t.Errorf("key %v, session %v", kv, sess.Check())
			}
			if f.counts["LeaseKeepAlive"] != 1 || f.counts["Range"] != 1 || f.counts["Put"] != 1 || len(f.counts) != 3 {
				t.Errorf("sent %v", f.counts)
			}
		})
	})
}

func TestSessionKeyThatCannotBePutAgainIsALossAfterAQuarterOfTheLockDelay(t *testing.T) {
	for delay, want := range map[time.Duration]time.Duration{
		0:               250 * time.Millisecond,
		2 * time.Second: 500 * time.Millisecond,
		-1:              250 * time.Millisecond,
	} {
		bubble.Test(t, func(t *testing.T) {
			srv, events := newServer(t), newRecorder()
			link := srv.Link()
			sess := openOn(t, link, session.Options{OnStateChange: events.tell, LockDelay: delay})
			key := keyOf(sess)
			link.LoseRequest("Put", 0)
			start := time.Now()
			srv.Delete(key)
			lost := lossOf(t, events.next(t, holdfast.Lost))
			if took := time.Since(start); took != want || lost.Cause != holdfast.CauseKeyDeleted || !strings.Contains(lost.Error(), key) {
				t.Errorf("LockDelay %v: after %v: %v", delay, took, lost)
			}
			link.Heal()
			events.next(t, holdfast.Connected)
		})
	}
}

// The watch is armed again, whatever ended it, and what was missed meanwhile is
// found by the read that follows.
func TestWatchOfTheSessionKeyIsArmedAgain(t *testing.T) {
	for name, fail := range map[string]func(srv *etcdfake.Server, link *etcdfake.Link){
		"cancelled": func(srv *etcdfake.Server, _ *etcdfake.Link) { srv.CancelWatches(rpctypes.ErrNoLeader) },
		"compacted": func(srv *etcdfake.Server, link *etcdfake.Link) {
			link.Cut()
			srv.Put("other", "")
			srv.Compact()
			link.Heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				srv, events := newServer(t), newRecorder()
				link := srv.Link()
				sess := openOn(t, link, session.Options{OnStateChange: events.tell})
				fail(srv, link)
				time.Sleep(2 * time.Second)
				revoked := time.Now()
				srv.Revoke(sess.Lease())
				lost := lossOf(t, events.next(t, holdfast.Lost))
				if time.Since(revoked) != 0 || lost.Cause != holdfast.CauseRevoked {
					t.Errorf("after %v: %v", time.Since(revoked), lost)
				}
				events.next(t, holdfast.Connected)
			})
		})
	}
}

func TestRevocationBeforeTheWatchStandsIsFoundByTheReadAfterIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv, events := newServer(t), newRecorder()
		link := srv.Link()
		sess := openOn(t, link, session.Options{OnStateChange: events.tell})
		revoked := sess.Lease()
		link.Delay(50 * time.Millisecond)
		srv.CancelWatches(rpctypes.ErrNoLeader)
		srv.Revoke(revoked)
		start := time.Now()
		lost := lossOf(t, events.next(t, holdfast.Lost))
		if took := time.Since(start); took > 500*time.Millisecond || lost.Lease != holdfast.LeaseID(revoked) {
			t.Errorf("after %v: %v", took, lost)
		}
		events.next(t, holdfast.Connected)
	})
}

// Nothing may be armed without a pause, whatever the answer.
func TestWatchOfTheSessionKeyThatIsRefusedIsNotArmedInALoop(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := newServer(t)
		link := srv.Link()
		sess := openOn(t, link, session.Options{})
		link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			return etcdfake.Fate{LoseRequest: c.Method == "Watch", Code: codes.Unavailable}
		})
		srv.CancelWatches(rpctypes.ErrNoLeader)
		before := link.Count()
		time.Sleep(time.Minute)
		if n := link.Count()["Watch"] - before["Watch"]; n > 800 {
			t.Errorf("%d watches in a minute; etcd's client alone opens ten a second", n)
		}
		if sess.Check() != nil {
			t.Error(sess.Check())
		}
	})
}

func TestSessionThatMayNotWriteItsKeyIsRefusedWithTheCommandThatGrantsIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFakeEtcd()
		f.denyPut = true
		sess, err := session.New(t.Context(), f.dial(t), quiet(session.Options{Namespace: "team-a"}))
		if err == nil {
			t.Fatal(sess)
		}
		const command = "etcdctl role grant-permission --prefix ROLE readwrite team-a/session/"
		if !errors.Is(err, rpctypes.ErrPermissionDenied) || !strings.Contains(err.Error(), command) ||
			!regexp.MustCompile(`"team-a/session/[0-9a-f]+"`).MatchString(err.Error()) {
			t.Errorf("%v", err)
		}
		if len(f.expiry) != 0 || f.count("LeaseGrant") != 1 || f.count("Put") != 1 {
			t.Errorf("leases %v, sent %v", f.expiry, f.counts)
		}
	})
}

// Roles get mended, so the session goes on trying; its waiters are told.
func TestWaiterForANewLeaseIsToldThatItIsRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, events := newFakeEtcd(), newRecorder()
		sess := f.open(t, session.Options{OnStateChange: events.tell})
		synctest.Wait()
		f.set(func(f *fakeEtcd) { f.denyPut = true; delete(f.expiry, int64(sess.Lease())) })
		events.next(t, holdfast.Lost)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if _, err := lease.Open(sess.Ref()).Await(ctx); !errors.Is(err, rpctypes.ErrPermissionDenied) || ctx.Err() != nil {
				t.Errorf("Await: %v", err)
			}
			cancel()
			time.Sleep(time.Minute)
		}
		f.set(func(f *fakeEtcd) {
			if n := f.counts["LeaseGrant"]; n > 400 || len(f.expiry) != 0 {
				t.Errorf("%d grants in two minutes, %d leases left", n, len(f.expiry))
			}
			f.denyPut = false
		})
		events.next(t, holdfast.Connected)
		if _, err := lease.Open(sess.Ref()).Await(t.Context()); err != nil {
			t.Errorf("Await: %v", err)
		}
	})
}
