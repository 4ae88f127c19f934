package inquest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/inquest"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/txns"
)

func TestMain(m *testing.M) { leak.Main(m) }

var at = layout.Named("holdfast", holdfast.KindLock, "x")

func sessionKey(lease clientv3.LeaseID) string { return fmt.Sprintf("session/%x", int64(lease)) }

// scene is a queue. Each change is one revision.
type scene struct {
	t   *testing.T
	cli *clientv3.Client
	now int64
}

// entry is the key of an entry of a writer, of which a lease has one.
func entry(lease clientv3.LeaseID) string {
	return fmt.Sprintf("%s%x-AAAAAAAAAAAAAAAA", at.Entries, int64(lease))
}

func (s *scene) change(ops ...clientv3.Op) int64 {
	s.t.Helper()
	r, err := s.cli.Txn(s.t.Context()).Then(ops...).Commit()
	if err != nil {
		s.t.Fatal(err)
	}
	s.now = r.Header.Revision
	return s.now
}

// joins puts the session key of a lease, and then its entry.
func (s *scene) joins(lease clientv3.LeaseID) int64 {
	s.change(clientv3.OpPut(sessionKey(lease), ""))
	return s.change(clientv3.OpPut(entry(lease), ""))
}

func (s *scene) leaves(lease clientv3.LeaseID)  { s.change(clientv3.OpDelete(entry(lease))) }
func (s *scene) keyGoes(lease clientv3.LeaseID) { s.change(clientv3.OpDelete(sessionKey(lease))) }

func (s *scene) revoked(lease clientv3.LeaseID) int64 {
	return s.change(clientv3.OpDelete(entry(lease)), clientv3.OpDelete(sessionKey(lease)))
}

// time passes, in revisions.
func (s *scene) time(revisions int) {
	for range revisions {
		s.change(clientv3.OpPut("other", ""))
	}
}

func TestInquestFindsWhoHeldWhenItsLeaseEnded(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(s *scene) (past int64) // to lease 1, and to lease 2 behind it; lease 3 waits
		want    inquest.Finding
		err     error
	}{
		"both left before their sessions ended": {func(s *scene) int64 {
			s.leaves(1)
			s.time(300)
			s.keyGoes(1)
			s.leaves(2)
			s.keyGoes(2)
			return 0
		}, inquest.Innocent, nil},
		"the last was revoked": {func(s *scene) int64 {
			s.leaves(1)
			s.keyGoes(1)
			s.time(300)
			s.revoked(2)
			return 0
		}, inquest.MayHold, nil},
		"the first was revoked, and the second left then": {func(s *scene) int64 {
			s.revoked(1)
			s.leaves(2)
			s.keyGoes(2)
			return 0
		}, inquest.MayHold, nil},
		"the second was revoked while it waited": {func(s *scene) int64 {
			s.revoked(2)
			s.time(300)
			s.leaves(1)
			s.keyGoes(1)
			return 0
		}, inquest.Innocent, nil},
		"both were revoked a lock delay ago": {func(s *scene) int64 {
			s.revoked(1)
			past := s.revoked(2)
			s.time(20)
			return past
		}, inquest.LongTold, nil},
		"one was revoked a lock delay ago, and one since": {func(s *scene) int64 {
			past := s.revoked(1)
			s.time(20)
			s.revoked(2)
			return past
		}, inquest.MayHold, nil},
		"the first queued again behind, and was revoked": {func(s *scene) int64 {
			s.leaves(1)
			s.change(clientv3.OpPut(entry(1), ""))
			s.time(20)
			s.revoked(1)
			s.leaves(2)
			s.keyGoes(2)
			return 0
		}, inquest.Innocent, nil},
		"a session key was deleted a lock delay ago, and its entry stood": {func(s *scene) int64 {
			s.leaves(1)
			s.keyGoes(1)
			s.keyGoes(2)
			s.time(1)
			past := s.now
			s.time(20)
			s.leaves(2)
			return past
		}, inquest.MayHold, nil},
		"the session key of one that waited was deleted, and its entry stood": {func(s *scene) int64 {
			s.keyGoes(2)
			s.time(20)
			s.leaves(1)
			s.keyGoes(1)
			s.leaves(2)
			return 0
		}, inquest.MayHold, nil},
		"a session key was deleted, and its entry stood": {func(s *scene) int64 {
			s.leaves(1)
			s.keyGoes(1)
			s.keyGoes(2)
			s.time(20)
			s.leaves(2)
			return 0
		}, inquest.MayHold, nil},
		"etcd does not know any more": {func(s *scene) int64 {
			s.leaves(1)
			s.keyGoes(1)
			s.leaves(2)
			s.keyGoes(2)
			if _, err := s.cli.Compact(s.t.Context(), s.now); err != nil {
				s.t.Fatal(err)
			}
			return 0
		}, inquest.MayHold, rpctypes.ErrCompacted},
		"etcd does not know any more, but what it was a lock delay ago": {func(s *scene) int64 {
			s.revoked(1)
			past := s.revoked(2)
			s.time(20)
			if _, err := s.cli.Compact(s.t.Context(), past); err != nil {
				s.t.Fatal(err)
			}
			return past
		}, inquest.LongTold, nil},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				s := &scene{t: t, cli: srv.Client(t)}
				first := s.joins(1)
				s.joins(2)
				q := inquest.Inquest{Scope: reads.Scope{At: at}, KeyOf: sessionKey}
				q.Created = s.change(clientv3.OpPut(entry(3), "")) // the entry of 2 is the revision before
				sent, fails, failure := 0, 0, errors.New("not answered")
				q.Read = func(ctx context.Context, ask txns.Ops) (txns.Reply, error) {
					if sent++; sent == fails {
						return txns.Reply{}, failure
					}
					r, err := s.cli.Txn(ctx).Then(ask...).Commit()
					if err != nil {
						return txns.Reply{}, err
					}
					return txns.Reply{Succeeded: true, Header: r.Header, Responses: r.Responses}, nil
				}
				q.Past = c.happens(s)
				search := func() (inquest.Finding, error) {
					sent = 0
					return q.Search(t.Context(), []clientv3.LeaseID{1, 2}, []int64{q.Created, 0, q.Past, first}, s.now)
				}
				found, err := search()
				if found != c.want || !errors.Is(err, c.err) {
					t.Errorf("found %v, %v; want %v, %v", found, err, c.want, c.err)
				}
				reads := sent
				if reads > 8 {
					t.Errorf("%d reads", reads)
				}
				for fails = 1; fails <= reads; fails++ {
					if found, err := search(); found != inquest.MayHold || !errors.Is(err, failure) {
						t.Errorf("read %d of %d is not answered: found %v, %v", fails, reads, found, err)
					}
				}
			})
		})
	}
}

// What is known to be a lock delay old was heard at least that long ago, and only two revisions are kept.
func TestPastIsWhatWasHeardAtLeastALockDelayAgo(t *testing.T) {
	t.Parallel()
	const lockDelay = time.Second
	type heard struct {
		revision int64
		at       time.Duration
	}
	for name, c := range map[string]struct {
		heard []heard
		at    time.Duration
		want  int64
	}{
		"nothing was heard":              {nil, time.Hour, 0},
		"one, just now":                  {[]heard{{5, 0}}, 0, 0},
		"one, not yet a lock delay ago":  {[]heard{{5, 0}}, lockDelay - 1, 0},
		"one, a lock delay ago":          {[]heard{{5, 0}}, lockDelay, 5},
		"one, and another one since":     {[]heard{{5, 0}, {6, lockDelay - 1}}, lockDelay, 5},
		"the other is not kept":          {[]heard{{5, 0}, {6, lockDelay - 1}}, time.Hour, 5},
		"another one a lock delay later": {[]heard{{5, 0}, {6, lockDelay}}, 2*lockDelay - 1, 5},
		"both are a lock delay old":      {[]heard{{5, 0}, {6, lockDelay}}, 2 * lockDelay, 6},
		"one of three is":                {[]heard{{5, 0}, {6, lockDelay}, {7, 5 * lockDelay}}, 5 * lockDelay, 6},
	} {
		var past inquest.Past
		began := time.Now()
		for _, h := range c.heard {
			past.Hear(h.revision, began.Add(h.at), lockDelay)
		}
		if got := past.Known(began.Add(c.at), lockDelay); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
