package lastrun_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/lastrun"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
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
	if err := lastrun.Record(kit.Within(t, time.Minute), lk, slot, within); err != nil {
		t.Fatal(err)
	}
}

// lastRun reads the last run of the lock "nightly".
func lastRun(t *testing.T, sess *session.Session) view.Run {
	t.Helper()
	r, err := lastrun.Read(kit.Within(t, time.Minute), sess, holdfast.KindLock, "nightly")
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
		skips := kit.Start(t, srv).Sess
		if r := lastRun(t, skips); r != (view.Run{}) || r.Known() {
			t.Errorf("before the first run: %+v", r)
		}
		lk := held(t, locker.NewMutex(ran.Sess, "nightly"))
		before := time.Now()
		mustRecord(t, lk, "2026-03-28", 0)
		if r := lastRun(t, skips); r.Slot != "2026-03-28" || !r.Due.IsZero() || r.Overdue(r.At.Add(10000*time.Hour)) {
			t.Errorf("it is not known when the next run is due: %+v", r)
		}
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
		mustRecord(t, held(t, locker.NewMutex(next.Sess, "nightly")), "2", 0)

		former.Resume()
		if err := lastrun.Record(kit.Within(t, time.Minute), lost, "1", 0); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("recorded with %v", err)
		}
		if r := lastRun(t, next.Sess); r.Slot != "2" {
			t.Errorf("%+v", r)
		}
	})
}

// The entry is deleted by hand, so etcd is the first to tell.
func TestRunThatEtcdRefusesSaysThatTheLockIsLost(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log bytes.Buffer
		p := kit.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		lk := held(t, locker.NewMutex(p.Sess, "nightly"))
		srv.Delete(lk.Key())
		if err := lastrun.Record(kit.Within(t, time.Minute), lk, "1", 0); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("recorded with %v", err)
		}
		synctest.Wait()
		if !strings.Contains(log.String(), "holdfast: refused") {
			t.Errorf("the session's logger got only\n%s", &log)
		}
		if r := lastRun(t, p.Sess); r.Known() {
			t.Errorf("%+v", r)
		}
	})
}

// The context of Do ends with the lock, also while etcd has the record and its reply is lost.
func TestRecordThatALossInterruptsIsNoLoss(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		lk := held(t, locker.NewMutex(p.Sess, "nightly"))
		ctx, cancel := lk.WithContext(t.Context())
		defer cancel()
		cut := false // once the record has been put
		p.Link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			text := fmt.Sprint(c.Request)
			cut = cut || strings.Contains(text, runKey) && strings.Contains(text, "request_put")
			return etcdfake.Fate{LoseReply: cut, Silent: cut}
		})
		err := lastrun.Record(ctx, lk, "1", 0)
		if !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrLost) {
			t.Errorf("recorded with %v", err)
		}
		p.Link.Plan(nil)
		other := kit.Start(t, srv)
		if r := lastRun(t, other.Sess); r.Slot != "1" {
			t.Errorf("%+v", r)
		}
	})
}

func TestRunIsNotRecordedAfterARelease(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		lk := held(t, locker.NewMutex(kit.Start(t, srv).Sess, "nightly"))
		release(t, lk)
		if err := lastrun.Record(kit.Within(t, time.Minute), lk, "1", 0); !errors.Is(err, holdfast.ErrReleased) {
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
				lk := held(t, locker.NewMutex(p.Sess, "nightly"))
				lost := false
				p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
					if !lost && putsRun(c) {
						lost, f = true, fate
					}
					return f
				})
				mustRecord(t, lk, "1", 0)
				if r := lastRun(t, p.Sess); !lost || r.Slot != "1" || len(srv.History(runKey)) != 1 {
					t.Errorf("%+v, history %v", r, srv.History(runKey))
				}
			})
		})
	}
}

func TestLateCopyOfARecordDoesNotReplaceTheNext(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		lk := held(t, locker.NewMutex(p.Sess, "nightly"))
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
		if r := lastRun(t, p.Sess); !late || r.Slot != "2" {
			t.Errorf("%+v", r)
		}
	})
}

func TestRecordThatIsPutByHandMeanwhileIsReplaced(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		lk := held(t, locker.NewMutex(p.Sess, "nightly"))
		meanwhile := false
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			if !meanwhile && putsRun(c) {
				meanwhile, f = true, etcdfake.Fate{Request: time.Second}
				time.AfterFunc(time.Millisecond, func() { srv.Put(runKey, "by hand") })
			}
			return f
		})
		mustRecord(t, lk, "1", 0)
		if r := lastRun(t, p.Sess); !meanwhile || r.Slot != "1" || len(srv.History(runKey)) != 2 {
			t.Errorf("%+v, history %v", r, srv.History(runKey))
		}
	})
}

func TestRecordWaitsForTheEndOfASuspension(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		lk := held(t, locker.NewMutex(p.Sess, "nightly"))
		p.Link.Cut()
		time.Sleep(kit.Trust/2 + p.Renewal)
		if err := lk.Check(); !errors.Is(err, holdfast.ErrSuspended) {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- lastrun.Record(kit.Within(t, time.Minute), lk, "1", 0) }() // received below
		synctest.Wait()
		p.Heal()
		if err := <-done; err != nil || lastRun(t, p.Sess).Slot != "1" {
			t.Errorf("%v, %+v", err, lastRun(t, p.Sess))
		}
	})
}

func TestRunIsReadByTheKindAndTheNameOfItsHolder(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess, reader := kit.Start(t, srv).Sess, kit.Start(t, srv).Sess
		ctx := kit.Within(t, time.Minute)
		tree, err := locker.NewTreeMutex(sess, "a/b").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		writer, err := locker.NewRWMutex(sess, "rw").LockDowngradable(ctx)
		if err != nil {
			t.Fatal(err)
		}
		term, err := election.New(sess, "x").Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			kind   holdfast.Kind
			holder fencing.Holder
		}{{holdfast.KindTree, tree}, {holdfast.KindLock, writer}, {holdfast.KindElection, term}} {
			if err := lastrun.Record(ctx, c.holder, "1", time.Hour); err != nil {
				t.Errorf("%s: %v", c.kind, err)
			}
			r, err := lastrun.Read(ctx, reader, c.kind, c.holder.Name())
			if err != nil || r.Slot != "1" || r.Token != c.holder.Token() {
				t.Errorf("%s: %+v, %v", c.kind, r, err)
			}
			if key := fmt.Sprintf("holdfast/%s/%s/@run", c.kind, c.holder.Name()); len(srv.Keys(key)) != 1 {
				t.Errorf("nothing stands at %s", key)
			}
		}
	})
}

// A set has one hold for each name. The record stands beside the name whose token it has.
func TestRunOfASetIsThatOfItsOnlyWriter(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess := kit.Start(t, srv).Sess
		ctx := kit.Within(t, time.Minute)
		record := func(slot string, parts ...locker.Part) error {
			return locker.NewSet(sess, parts...).Do(ctx, func(ctx context.Context, set *locker.SetLock) error {
				return lastrun.Record(ctx, set, slot, 0)
			})
		}
		if err := record("1", locker.Read("archive"), locker.Write("nightly")); err != nil {
			t.Error(err)
		}
		if err := record("2", locker.Write("nightly"), locker.Write("archive")); !errors.Is(err, holdfast.ErrNoToken) {
			t.Errorf("of two: %v", err)
		}
		if err := record("3", locker.Read("nightly")); !errors.Is(err, holdfast.ErrNoToken) {
			t.Errorf("of none: %v", err)
		}
		if r := lastRun(t, sess); r.Slot != "1" {
			t.Errorf("%+v", r)
		}
		if kvs := srv.Keys("holdfast/lock/"); len(kvs) != 1 || string(kvs[0].Key) != runKey {
			t.Errorf("there is another record: %v", kvs)
		}
	})
}

// own is a holder of a user's, which wraps a lock and promotes none of its methods.
type own struct{ fencing.Holder }

// outer is a holder of a user's, which promotes those of a lock.
type outer struct{ *locker.Lock }

func TestRunOfAHolderThatIsNoLockIsRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess := kit.Start(t, srv).Sess
		ctx := kit.Within(t, time.Minute)
		lk := held(t, locker.NewMutex(sess, "nightly"))
		if err := lastrun.Record(ctx, outer{lk}, "1", 0); err != nil {
			t.Error(err)
		}
		refuses := func(what string, holder fencing.Holder) {
			t.Helper()
			var bad *holdfast.ArgumentError
			if err := lastrun.Record(ctx, holder, "2", 0); !errors.As(err, &bad) || bad.Argument != "lk" {
				t.Errorf("%s: %v", what, err)
			}
		}
		refuses("nil", nil)
		refuses("a failed acquisition", (*locker.Lock)(nil))
		refuses("a zero lock", &locker.Lock{})
		refuses("a zero term", &election.Term{})
		refuses("a holder of the user's own", own{lk})
		refuses("a foreign prefix", held(t, locker.NewMutexAt(sess, "/jobs/nightly")))
		ctx, cancel := context.WithCancel(ctx)
		err := shard.New(sess, "orders", 1).Run(ctx, func(_ context.Context, s *shard.Shard) error {
			defer cancel()
			refuses("a shard", s)
			return nil
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if kvs := srv.Keys("/jobs/nightly/"); len(kvs) != 1 {
			t.Errorf("etcd's own clients would wait for these: %v", kvs)
		}
		if r := lastRun(t, sess); r.Slot != "1" {
			t.Errorf("%+v", r)
		}
	})
}

func TestRecordOfARunSaysWhatIsWrong(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		lk := held(t, locker.NewMutex(kit.Start(t, srv).Sess, "nightly"))
		for argument, err := range map[string]error{
			"slot":   lastrun.Record(t.Context(), lk, strings.Repeat("x", 257), 0),
			"within": lastrun.Record(t.Context(), lk, "1", -1),
		} {
			var bad *holdfast.ArgumentError
			if !errors.As(err, &bad) || bad.Argument != argument {
				t.Errorf("%s: %v", argument, err)
			}
		}
		var bad *holdfast.ArgumentError
		if err := lastrun.Record(t.Context(), lk, "\xff", 0); !errors.As(err, &bad) || bad.Argument != "slot" {
			t.Errorf("slot that is no text: %v", err)
		}
		if len(srv.History(runKey)) > 0 {
			t.Error("a record was put")
		}
		mustRecord(t, lk, strings.Repeat("x", 256), 0)
	})
}

func TestReadOfARunSaysWhatIsWrong(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess := kit.Start(t, srv).Sess
		read := func(sess *session.Session, kind holdfast.Kind, name string) error {
			_, err := lastrun.Read(t.Context(), sess, kind, name)
			return err
		}
		var bad *holdfast.ArgumentError
		for _, kind := range []holdfast.Kind{"", "none", holdfast.KindShard, holdfast.KindSemaphore} {
			if err := read(sess, kind, "nightly"); !errors.As(err, &bad) || bad.Argument != "kind" {
				t.Errorf("kind %q: %v", kind, err)
			}
		}
		if err := read(nil, holdfast.KindLock, "nightly"); !errors.As(err, &bad) || bad.Argument != "sess" {
			t.Errorf("no session: %v", err)
		}
		if err := read(sess, holdfast.KindLock, "/jobs/nightly"); !errors.As(err, new(*holdfast.NameError)) {
			t.Errorf("no name: %v", err)
		}
		lk := held(t, locker.NewMutex(sess, "nightly"))
		srv.Put(runKey, "yesterday")
		if err := read(sess, holdfast.KindLock, "nightly"); err == nil || !strings.Contains(err.Error(), runKey) {
			t.Errorf("what another client has put: %v", err)
		}
		mustRecord(t, lk, "1", 0)
		if r := lastRun(t, sess); r.Slot != "1" {
			t.Errorf("%+v", r)
		}
	})
}
