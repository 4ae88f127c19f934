package robustness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/explain"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/tests/internal/testkit"
)

// within bounds what a test waits for.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A log may be written to by several goroutines.
type syncLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *syncLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// endings are the faults that may end a hold, and how its entry goes.
var endings = []struct {
	what string
	do   func(t *testing.T, link *etcdtest.Link, adm *admin.Client, lk *locker.Lock)
	ends explain.End
	ttl  time.Duration // 0: testkit.TTL, which no busy machine exceeds
}{
	{"released", func(t *testing.T, _ *etcdtest.Link, _ *admin.Client, lk *locker.Lock) {
		_ = lk.Unlock(within(t))
	}, explain.LetGo, 0},
	{"revoked", func(t *testing.T, _ *etcdtest.Link, _ *admin.Client, lk *locker.Lock) {
		if _, err := lk.Client().Revoke(within(t), lk.Lease()); err != nil {
			t.Error(err)
		}
	}, explain.LeaseEnded, 0},
	{"deleted", func(t *testing.T, _ *etcdtest.Link, _ *admin.Client, lk *locker.Lock) {
		if _, err := lk.Client().Delete(within(t), lk.Key()); err != nil {
			t.Error(err)
		}
	}, explain.Deleted, 0},
	{"kicked", func(t *testing.T, _ *etcdtest.Link, adm *admin.Client, lk *locker.Lock) {
		if err := adm.Kick(within(t), holdfast.KindLock, lk.Name(), lk.Token(), "deploy"); err != nil {
			t.Error(err)
		}
		<-lk.Done()
		_ = lk.Unlock(within(t))
	}, explain.LetGo, 0},
	{"removed", func(t *testing.T, _ *etcdtest.Link, adm *admin.Client, lk *locker.Lock) {
		if err := adm.Remove(within(t), holdfast.KindLock, lk.Name(), lk.Token(), "host is gone"); err != nil {
			t.Error(err)
		}
	}, explain.Moved, 0},
	{"cut off", func(_ *testing.T, link *etcdtest.Link, _ *admin.Client, _ *locker.Lock) {
		link.BlackHole()
	}, explain.LeaseEnded, 8 * time.Second}, // the test waits for as long
}

// Twenty holds end, each by a fault: the cause is that of the loss, or not known without the log of the holder.
func TestCauseIsThatOfTheLossOrNotKnownInARealCluster(t *testing.T) {
	t.Parallel()
	srv := etcdtest.StartCluster(t, 3, etcdtest.Options{DefaultTicks: true})
	cli := srv.Client(t)
	adm := admin.New(cli, admin.Options{Owner: "ops", Auditor: testkit.Unrecorded})
	for i := range 20 {
		fault, name := endings[i%len(endings)], fmt.Sprint("job-", i)
		t.Run(fmt.Sprint(fault.what, " ", i), func(t *testing.T) {
			t.Parallel()
			var log syncLog
			link := srv.Link(t)
			sess, err := session.New(within(t), link.Client(), session.Options{
				TTL: cmp.Or(fault.ttl, testkit.TTL), Owner: "a", StayLost: true,
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})
			if err != nil {
				t.Fatal(err)
			}
			lk, err := locker.NewMutex(sess, name).Lock(within(t))
			if err != nil {
				t.Fatal(err)
			}
			fault.do(t, link, adm, lk)
			<-lk.Done()
			srv.WaitForKeys(t, "holdfast/lock/"+name+"/@/", 0) // a session that is cut off leaves its claim for minutes
			link.Heal()
			_ = sess.Close(within(t)) // its log is complete

			story, err := explain.Read(within(t), cli, explain.Of{
				Namespace: "holdfast", Kind: holdfast.KindLock, Name: name,
			})
			if err != nil || len(story.Spells) != 1 || !story.All {
				t.Fatalf("%+v, %v", story, err)
			}
			s := story.Spells[0]
			if _, known := s.Cause(); known || s.End != fault.ends || s.Held != lk.Token().Revision() || s.Ended <= s.Held {
				t.Errorf("without a log: %+v", s)
			}
			lines, err := explain.Lines(&log.text)
			if err != nil {
				t.Fatal(err)
			}
			story.Add(lines)
			var lost *holdfast.LostError
			isLost := errors.As(lk.Check(), &lost)
			if cause, known := s.Cause(); known != isLost || known && cause != lost.Cause || s.Released() == isLost {
				t.Errorf("the cause is told as %v, %v, and it is %v; lines %+v", cause, known, lk.Check(), s.Lines)
			}
		})
	}
}
