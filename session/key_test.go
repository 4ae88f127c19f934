package session_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

func TestSessionKeyNamesItsOwnerAndExistsAsLongAsTheLease(t *testing.T) {
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
			start(t, func(t *testing.T, c *cluster) {
				sess := c.open(t, tc.opts)
				if want := fmt.Sprintf("holdfast/session/%x", int64(sess.Lease())); keyOf(sess) != want {
					t.Errorf("key %q, want %q", keyOf(sess), want)
				}
				resp, err := sess.Client().Get(t.Context(), keyOf(sess))
				if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].Lease != int64(sess.Lease()) {
					t.Fatalf("%v, %v", resp, err)
				}
				held, err := lease.Open(sess).Await(t.Context())
				if err != nil || held.Gate() != resp.Kvs[0].ModRevision {
					t.Errorf("gate %d, the key was put at %d: %v", held.Gate(), resp.Kvs[0].ModRevision, err)
				}
				var value map[string]any
				if err := json.Unmarshal(resp.Kvs[0].Value, &value); err != nil || value["v"] != 2.0 {
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
				if left := c.Keys(""); len(left) != 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		})
	}
}

// Once, this took until the next renewal: up to a third of the TTL.
func TestLeaseRevokedByHandIsToldByTheWatchOfItsKey(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		c.link.Delay(10 * time.Millisecond)
		sess := c.open(t, session.Options{
			OnStateChange: events.record,
			Retry:         backoff.Policy{Initial: time.Minute, Max: time.Minute}, // too long for the watch
		})
		for range 2 { // the first lease, and the one that follows it
			time.Sleep(time.Second)
			revoked := time.Now()
			c.Revoke(sess.Lease())
			lost := lossOf(t, events.next(t, holdfast.Lost))
			// The event travels 10 ms, the put 20.
			if took := time.Since(revoked); lost.Cause != holdfast.CauseRevoked || took != 30*time.Millisecond {
				t.Errorf("told after %v: %v", took, lost)
			}
			if !strings.Contains(lost.Error(), "deposed etcd leader") {
				t.Errorf("%v", lost)
			}
			events.next(t, holdfast.Connected)
		}
	})
}

func TestSessionKeyDeletedByHandIsPutAgainAndNothingIsLost(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		events := newRecorder()
		warned := make(chan string, 10)
		sess := c.open(t, session.Options{OnStateChange: events.record, Logger: slog.New(lineHandler(warned))})
		held := await(t, sess)
		for range 3 {
			time.Sleep(7 * time.Second)
			gate := held.Gate()
			c.Delete(keyOf(sess))
			synctest.Wait()
			kvs := c.Keys(keyOf(sess))
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

// The watch tells of the deletion, and so does the read of a renewal, whose reply travels longer than the put takes.
func TestSessionKeyIsPutAgainOnceAlthoughItsDeletionIsSeenTwice(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		warned := make(chan string, 10)
		sess := c.open(t, session.Options{Logger: slog.New(lineHandler(warned))})
		time.Sleep(5 * time.Second)
		c.link.Plan(func(call etcdfake.Call) etcdfake.Fate {
			switch call.Method {
			case "Put":
				return etcdfake.Fate{Request: 100 * time.Millisecond}
			case "Range":
				return etcdfake.Fate{Reply: 200 * time.Millisecond}
			}
			return etcdfake.Fate{}
		})
		before := c.link.Count()
		c.Delete(keyOf(sess)) // 62 ms before the read
		time.Sleep(time.Second)
		if n := c.count("Put") - before["Put"]; n != 1 || len(warned) != 1 {
			t.Errorf("%d puts, %d warnings", n, len(warned))
		}
	})
}

// A role that may write below session/ may delete keys there all the time.
func TestSessionKeyDeletedAgainAndAgainCausesNoRequestStorm(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		c.link.Delay(time.Millisecond)
		sess := c.open(t, session.Options{})
		id, before := sess.Lease(), c.link.Count()
		for range 60_000 {
			c.Delete(keyOf(sess))
			time.Sleep(time.Millisecond)
		}
		after := c.link.Count()
		if n := after["Put"] - before["Put"]; n > 600 || sess.Lease() != id {
			t.Errorf("%d puts in a minute", n)
		}
	})
}

func TestSessionKeyDetachedFromItsLeaseIsAttachedAgainByARenewal(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		sess := c.open(t, session.Options{})
		c.Put(keyOf(sess), "detached")
		time.Sleep(5100 * time.Millisecond)
		synctest.Wait()
		if kvs := c.Keys(keyOf(sess)); len(kvs) != 1 || kvs[0].Lease != int64(sess.Lease()) {
			t.Errorf("%v", kvs)
		}
	})
}

// silent is a Watcher whose watches stand and report nothing, as on a member that hangs.
type silent struct{ clientv3.Watcher }

func (silent) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	events := make(chan clientv3.WatchResponse, 1)
	events <- clientv3.WatchResponse{Created: true}
	context.AfterFunc(ctx, func() { close(events) })
	return events
}

// The read that confirms each renewal finds the key missing. That costs no additional RPC.
func TestRenewalFindsADeletionThatTheWatchMissed(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		cli.Watcher = silent{cli.Watcher}
		sess := c.openOn(t, cli, session.Options{})
		before := c.link.Count()
		c.Delete(keyOf(sess))
		time.Sleep(5100 * time.Millisecond)
		synctest.Wait()
		if len(c.Keys(keyOf(sess))) != 1 || sess.Check() != nil {
			t.Errorf("keys %v, session %v", c.Keys(""), sess.Check())
		}
		for method, n := range c.link.Count() {
			want := map[string]int{"LeaseKeepAlive": 1, "Range": 1, "Put": 1}[method]
			if n -= before[method]; n != want {
				t.Errorf("%s sent %d times, want %d", method, n, want)
			}
		}
	})
}

// A key that is gone most likely went with its lease. If etcd does not reply in time, that is what the loss says.
func TestSessionKeyThatCannotBeRestoredIsALoss(t *testing.T) {
	for delay, want := range map[time.Duration]time.Duration{
		0:           500 * time.Millisecond,
		time.Second: 250 * time.Millisecond,
		-1:          500 * time.Millisecond,
	} {
		for cause, want := range map[holdfast.Cause]time.Duration{
			holdfast.CauseRevoked: want, holdfast.CauseKeyDeleted: 0, // etcd does not answer, or refuses it at once
		} {
			start(t, func(t *testing.T, c *cluster) {
				events, cli := newRecorder(), c.dial(t)
				kv := &denied{KV: cli.KV}
				cli.KV = kv
				sess := c.openOn(t, cli, session.Options{OnStateChange: events.record, LockDelay: delay})
				kv.denied.Store(cause == holdfast.CauseKeyDeleted)
				c.hang("Put")
				start := time.Now()
				c.Delete(keyOf(sess))
				lost := lossOf(t, events.next(t, holdfast.Lost))
				if took := time.Since(start); took != want || lost.Cause != cause ||
					!strings.Contains(lost.Error(), "session key") {
					t.Errorf("LockDelay %v: after %v: %v", delay, took, lost)
				}
				kv.denied.Store(false)
				c.heal()
				events.next(t, holdfast.Connected)
			})
		}
	}
}

// Once, the loss said that the session key was deleted, because the refusal of its put came too late.
func TestRevocationIsToldAsSuchIfRepliesAreSlow(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second, -1} {
		start(t, func(t *testing.T, c *cluster) {
			events := newRecorder()
			sess := c.open(t, session.Options{OnStateChange: events.record, LockDelay: delay})
			c.link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{Reply: 600 * time.Millisecond} })
			c.Revoke(sess.Lease())
			if lost := lossOf(t, events.next(t, holdfast.Lost)); lost.Cause != holdfast.CauseRevoked {
				t.Errorf("LockDelay %v: %v", delay, lost)
			}
			c.heal()
			events.next(t, holdfast.Connected)
		})
	}
}

// denied is a KV that refuses puts while denied is true.
type denied struct {
	clientv3.KV
	denied atomic.Bool
	with   error // nil: rpctypes.ErrPermissionDenied
	puts   atomic.Int64
}

func (d *denied) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if d.denied.Load() {
		d.puts.Add(1)
		return nil, cmp.Or(d.with, rpctypes.ErrPermissionDenied)
	}
	return d.KV.Put(ctx, key, value, opts...)
}

func TestNewWithoutPermissionForTheKeyNamesTheCommandThatGrantsIt(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		kv := &denied{KV: cli.KV}
		kv.denied.Store(true)
		cli.KV = kv
		sess, err := session.New(t.Context(), cli, quiet(session.Options{Namespace: "team-a"}))
		if err == nil {
			t.Fatal(sess)
		}
		const command = "etcdctl role grant-permission --prefix ROLE readwrite team-a/session/"
		if !errors.Is(err, rpctypes.ErrPermissionDenied) || !strings.Contains(err.Error(), command) ||
			!regexp.MustCompile(`"team-a/session/[0-9a-f]+"`).MatchString(err.Error()) {
			t.Errorf("%v", err)
		}
		if c.leases(t) != 0 || c.count("LeaseGrant") != 2 || kv.puts.Load() != 1 {
			t.Errorf("%d leases, %d grants, %d puts", c.leases(t), c.count("LeaseGrant"), kv.puts.Load())
		}
	})
}

// Its Grant was slow, so a renewal is under way beside the put.
func TestNewWithoutPermissionForTheKeyDoesNotWaitForARenewal(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		kv := &denied{KV: cli.KV}
		kv.denied.Store(true)
		cli.KV = kv
		c.fail(etcdfake.Fate{Request: 2 * time.Second, Reply: 2 * time.Second}, "LeaseGrant", "LeaseKeepAlive")
		began := time.Now()
		_, err := session.New(t.Context(), cli, quiet(session.Options{}))
		if took := time.Since(began); took != 4*time.Second || !errors.Is(err, rpctypes.ErrPermissionDenied) ||
			!strings.Contains(err.Error(), "etcdctl role grant-permission") {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// The lease is gone when its key is put: the next one may not be.
func TestNewBeginsAnewIfItsLeaseIsGone(t *testing.T) {
	for _, slow := range []time.Duration{0, 2 * time.Second} {
		start(t, func(t *testing.T, c *cluster) {
			cli := c.dial(t)
			kv := &denied{KV: cli.KV, with: rpctypes.ErrLeaseNotFound}
			kv.denied.Store(true)
			cli.KV = kv
			time.AfterFunc(2*slow+time.Millisecond, func() { kv.denied.Store(false) }) // after the first put
			c.delay(slow, slow)
			if sess := c.openOn(t, cli, session.Options{}); sess.Check() != nil || kv.puts.Load() == 0 {
				t.Errorf("round trips of %v: %v, after %d puts that were refused", 2*slow, sess.Check(), kv.puts.Load())
			}
		})
	}
}

// Roles get repaired and alarms disarmed, so the session keeps trying; callers that wait for a lease get the error.
func TestAwaitReturnsWhyANewLeaseIsRefused(t *testing.T) {
	for _, refusal := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrNoSpace} {
		start(t, func(t *testing.T, c *cluster) {
			events, cli := newRecorder(), c.dial(t)
			kv := &denied{KV: cli.KV, with: refusal}
			cli.KV = kv
			sess := c.openOn(t, cli, session.Options{OnStateChange: events.record})
			kv.denied.Store(true)
			c.Revoke(sess.Lease())
			events.next(t, holdfast.Lost)
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				if _, err := lease.Open(sess).Await(ctx); !errors.Is(err, refusal) || ctx.Err() != nil {
					t.Errorf("Await: %v", err)
				}
				cancel()
				time.Sleep(time.Minute)
			}
			if n := c.count("LeaseGrant"); n > 2*400 || c.leases(t) != 0 {
				t.Errorf("%d Grants in two minutes, %d leases left", n, c.leases(t))
			}
			kv.denied.Store(false)
			events.next(t, holdfast.Connected)
			if _, err := lease.Open(sess).Await(t.Context()); err != nil {
				t.Errorf("Await: %v", err)
			}
			// What was refused then is not the reason for the next loss.
			c.link.Delay(10 * time.Millisecond)
			c.Revoke(sess.Lease())
			events.next(t, holdfast.Lost)
			if _, err := lease.Open(sess).Await(t.Context()); err != nil {
				t.Errorf("Await after the next loss: %v", err)
			}
		})
	}
}
