package session_test

import (
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/session"
)

// told counts what an errand was told: whether the key "x" is as it was.
type told struct{ yes, no atomic.Int64 }

// sends gives a session an errand.
func (c *told) sends(t *testing.T, sess *session.Session, srv *cluster) *lease.Lease {
	t.Helper()
	l, clock := await(t, sess), lease.Open(sess).Clock
	resp, err := srv.dial(t).Put(t.Context(), "x", "")
	if err != nil {
		t.Fatal(err)
	}
	e := lease.Errand{
		If: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision("x"), "=", resp.Header.Revision)},
		Told: func(sent time.Duration, yes bool) {
			if ago := clock() - sent; ago < 0 || ago > time.Second {
				t.Errorf("told what was asked %v ago", ago)
			}
			if yes {
				c.yes.Add(1)
			} else {
				c.no.Add(1)
			}
		},
	}
	l.Errands.Run(func() *lease.Errand { return &e })
	return l
}

func TestReadThatProvesARenewalRunsAnErrand(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		var told told
		l := told.sends(t, c.open(t, session.Options{}), c)
		c.delay(10*time.Millisecond, 10*time.Millisecond)
		ranges, txns := c.count("Range"), c.count("Txn")
		time.Sleep(3*renewalDue + time.Second)
		if told.yes.Load() != 3 || told.no.Load() != 0 || c.count("Range") != ranges || c.count("Txn") != txns+3 {
			t.Errorf("told yes %d times and no %d times, by %d reads and %d Txns", told.yes.Load(), told.no.Load(),
				c.count("Range")-ranges, c.count("Txn")-txns)
		}
		if _, err := c.dial(t).Put(t.Context(), "x", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(renewalDue)
		if told.no.Load() != 1 || l.Check() != nil {
			t.Errorf("told no %d times; the lease: %v", told.no.Load(), l.Check())
		}
	})
}

// Whether a lease lives must not depend on a right to what is held on it.
func TestErrandThatEtcdRefusesCostsNoLease(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		var told told
		l := told.sends(t, c.open(t, session.Options{}), c)
		c.refuse(codes.PermissionDenied, "Txn")
		time.Sleep(time.Minute)
		if err := l.Check(); err != nil || told.yes.Load()+told.no.Load() != 0 {
			t.Errorf("the lease: %v; told %d times", err, told.yes.Load()+told.no.Load())
		}
		c.heal()
		time.Sleep(renewalDue)
		if told.yes.Load() != 1 {
			t.Error("the errand does not run once etcd takes it")
		}
	})
}

// An errand whose reply is lost proves nothing, and tells nothing.
func TestErrandThatIsNotAnsweredProvesNothing(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		var told told
		l := told.sends(t, c.open(t, session.Options{StayLost: true}), c)
		c.fail(etcdfake.Fate{LoseReply: true, Silent: true}, "Txn")
		time.Sleep(15 * time.Second)
		if l.Lost() == nil || told.yes.Load()+told.no.Load() != 0 {
			t.Errorf("lost: %v; told %d times", l.Lost(), told.yes.Load()+told.no.Load())
		}
	})
}

// A key that was deleted by hand is put again, whatever the errand asks.
func TestErrandDoesNotHideThatTheSessionKeyIsGone(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		var told told
		sess := c.open(t, session.Options{})
		l := told.sends(t, sess, c)
		c.hang("Watch")
		for range 3 {
			c.Delete(keyOf(sess))
			time.Sleep(renewalDue + time.Second)
			if len(c.Keys(keyOf(sess))) != 1 || l.Check() != nil {
				t.Fatalf("the session key does not stand; the lease: %v", l.Check())
			}
		}
	})
}
