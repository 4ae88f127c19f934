package hold_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/view"
)

const runKey = "holdfast/lock/nightly/@run"

// held returns the lock of a free name.
func held(t *testing.T, mu *locker.Mutex) *locker.Lock {
	t.Helper()
	lk, err := mu.Lock(kit.Within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

func release(t *testing.T, lk *locker.Lock) {
	t.Helper()
	if err := lk.Unlock(kit.Within(t, time.Minute)); err != nil {
		t.Error(err)
	}
}

func mustRecord(t *testing.T, lk *locker.Lock, slot string, within time.Duration) {
	t.Helper()
	if err := lk.RecordRun(kit.Within(t, time.Minute), slot, within); err != nil {
		t.Fatal(err)
	}
}

func lastRun(t *testing.T, mu *locker.Mutex) view.Run {
	t.Helper()
	r, err := mu.LastRun(kit.Within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// putsRun reports whether a call is a Txn that puts a record.
func putsRun(c etcdfake.Call) bool {
	txn, ok := c.Request.(*pb.TxnRequest)
	text := txn.String()
	return ok && strings.Contains(text, runKey) && strings.Contains(text, "request_put")
}

func TestRunIsRecordedForEachProcessToRead(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ran := kit.Start(t, srv, func(o *session.Options) { o.Owner = "node-1" })
		skips := locker.NewMutex(kit.Start(t, srv).Sess, "nightly")
		if r := lastRun(t, skips); r != (view.Run{}) || r.Known() {
			t.Errorf("before the first run: %+v", r)
		}
		lk := held(t, locker.NewMutex(ran.Sess, "nightly"))
		before := time.Now()
		mustRecord(t, lk, "2026-03-28", 0)
		mustRecord(t, lk, "2026-03-29", 25*time.Hour)
		release(t, lk)

		r := lastRun(t, skips)
		if r.Slot != "2026-03-29" || r.Owner != "node-1" || r.Token != lk.Token() || r.Host == "" || r.PID == 0 {
			t.Errorf("%+v", r)
		}
		if r.At.Before(before.Truncate(time.Millisecond)) || r.At.After(time.Now()) || r.Due.Sub(r.At) != 25*time.Hour {
			t.Errorf("recorded at %v, due at %v", r.At, r.Due)
		}
		if r.Overdue(r.Due) || !r.Overdue(r.Due.Add(1)) || (view.Run{At: r.At}).Overdue(r.Due.Add(1)) {
			t.Error("overdue from the time on at which it is due, and only if that is known")
		}
		if kvs := srv.Keys("holdfast/lock/"); len(kvs) != 1 || string(kvs[0].Key) != runKey || kvs[0].Lease != 0 {
			t.Errorf("one key for each name, which outlives the session: %v", kvs)
		}
	})
}

func TestRunOfAFormerHolderIsNotRecorded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		former, next := kit.Start(t, srv), kit.Start(t, srv)
		lost := held(t, locker.NewMutex(former.Sess, "nightly"))
		former.Stop()
		srv.Revoke(former.Sess.Lease())
		mu := locker.NewMutex(next.Sess, "nightly")
		mustRecord(t, held(t, mu), "2", 0)

		former.Resume()
		if err := lost.RecordRun(kit.Within(t, time.Minute), "1", 0); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("recorded with %v", err)
		}
		if r := lastRun(t, mu); r.Slot != "2" {
			t.Errorf("%+v", r)
		}
	})
}

// The entry is deleted by hand, so etcd is the first to tell.
func TestRunThatEtcdRefusesSaysThatTheLockIsLost(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := kit.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		mu := locker.NewMutex(p.Sess, "nightly")
		lk := held(t, mu)
		srv.Delete(lk.Key())
		if err := lk.RecordRun(kit.Within(t, time.Minute), "1", 0); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("recorded with %v", err)
		}
		synctest.Wait()
		if !strings.Contains(log.String(), "holdfast: refused") {
			t.Errorf("the session's logger got only\n%s", &log)
		}
		if r := lastRun(t, mu); r.Known() {
			t.Errorf("%+v", r)
		}
	})
}

func TestRunIsNotRecordedAfterARelease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		lk := held(t, locker.NewMutex(kit.Start(t, srv).Sess, "nightly"))
		release(t, lk)
		if err := lk.RecordRun(kit.Within(t, time.Minute), "1", 0); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("recorded with %v", err)
		}
	})
}

func TestRunIsRecordedOnceThoughMessagesAreLost(t *testing.T) {
	for name, fate := range map[string]etcdfake.Fate{
		"the reply":             {LoseReply: true, Code: codes.Unavailable},
		"the request":           {LoseRequest: true, Code: codes.Unavailable},
		"the reply, silently":   {LoseReply: true, Silent: true},
		"the reply, by a proxy": {LoseReply: true, Code: codes.DeadlineExceeded}, // etcd's client sends it again
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				mu := locker.NewMutex(p.Sess, "nightly")
				lk := held(t, mu)
				lost := false
				p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
					if !lost && putsRun(c) {
						lost, f = true, fate
					}
					return f
				})
				mustRecord(t, lk, "1", 0)
				if r := lastRun(t, mu); !lost || r.Slot != "1" || len(srv.History(runKey)) != 1 {
					t.Errorf("%+v, history %v", r, srv.History(runKey))
				}
			})
		})
	}
}

func TestLateCopyOfARecordDoesNotReplaceTheNext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "nightly")
		lk := held(t, mu)
		late := false
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			if !late && putsRun(c) {
				late, f = true, etcdfake.Fate{Request: time.Minute}
			}
			return f
		})
		mustRecord(t, lk, "1", 0) // by a second copy
		mustRecord(t, lk, "2", 0)
		time.Sleep(2 * time.Minute)
		if r := lastRun(t, mu); !late || r.Slot != "2" {
			t.Errorf("%+v", r)
		}
	})
}

func TestRecordWaitsForTheEndOfASuspension(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		mu := locker.NewMutex(p.Sess, "nightly")
		lk := held(t, mu)
		p.Link.Cut()
		time.Sleep(kit.Trust/2 + p.Renewal)
		if err := lk.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- lk.RecordRun(kit.Within(t, time.Minute), "1", 0) }() // received below
		synctest.Wait()
		p.Heal()
		if err := <-done; err != nil || lastRun(t, mu).Slot != "1" {
			t.Errorf("%v, %+v", err, lastRun(t, mu))
		}
	})
}

func TestRecordOfARunSaysWhatIsWrong(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess := kit.Start(t, srv).Sess
		mu, at := locker.NewMutex(sess, "nightly"), locker.NewMutexAt(sess, "/jobs/nightly")
		lk, foreign := held(t, mu), held(t, at)
		var bad *holdfast.ArgumentError
		for argument, err := range map[string]error{
			"slot":     lk.RecordRun(t.Context(), strings.Repeat("x", 257), 0),
			"within":   lk.RecordRun(t.Context(), "1", -1),
			"receiver": foreign.RecordRun(t.Context(), "1", 0),
		} {
			if !errors.As(err, &bad) || bad.Argument != argument {
				t.Errorf("%s: %v", argument, err)
			}
		}
		if err := lk.RecordRun(t.Context(), "\xff", 0); !errors.As(err, &bad) || bad.Argument != "slot" {
			t.Errorf("slot that is no text: %v", err)
		}
		if _, err := at.LastRun(t.Context()); !errors.As(err, &bad) || bad.Argument != "receiver" {
			t.Errorf("of a foreign prefix: %v", err)
		}
		if kvs := srv.Keys("/jobs/nightly/"); len(kvs) != 1 {
			t.Errorf("etcd's own clients would wait for these: %v", kvs)
		}
		srv.Put(runKey, "yesterday")
		if _, err := mu.LastRun(t.Context()); err == nil || !strings.Contains(err.Error(), runKey) {
			t.Errorf("what another client has put: %v", err)
		}
		mustRecord(t, lk, "1", 0)
		if r := lastRun(t, mu); r.Slot != "1" {
			t.Errorf("%+v", r)
		}
	})
}
