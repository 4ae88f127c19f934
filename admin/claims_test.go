package admin_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// lockDelay is the default of session.Options.LockDelay.
const lockDelay = 2 * time.Second

// places are the two kinds of queues, whose claims stand at different places.
var places = map[holdfast.Kind]struct {
	name  string
	mutex func(*session.Session) *locker.Mutex
	claim string
}{
	holdfast.KindLock: {"x", func(s *session.Session) *locker.Mutex { return locker.NewMutex(s, "x") },
		"holdfast/lock/x/@claim/"},
	admin.LockAt: {"/app/x", func(s *session.Session) *locker.Mutex { return locker.NewMutexAt(s, "/app/x") },
		"holdfast/claim//app/x/"},
}

func queueFor(t *testing.T, mu *locker.Mutex) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if lk, err := mu.Lock(ctx); err == nil {
			<-ctx.Done()
			_ = lk.Unlock(context.WithoutCancel(ctx))
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	time.Sleep(100 * time.Millisecond)
}

// After a loss the next one is the first entry, and does not hold until the delay is over.
func TestNobodyIsShownAsTheHolderDuringALockDelay(t *testing.T) {
	for kind, at := range places {
		t.Run(string(kind), func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
				a, _ := newSession(t, srv, "a")
				b, _ := newSession(t, srv, "b")
				lk, err := at.mutex(a).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				queueFor(t, at.mutex(b))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				told := watch(t, adm.Events(ctx, kind, at.name))
				expect(t, told, "queued a 0, queued b 1, acquired a 1")
				gone := a.Lease()
				srv.Revoke(gone)
				time.Sleep(100 * time.Millisecond)
				q, err := adm.Show(t.Context(), kind, at.name)
				if _, held := q.Holder(); err != nil || held || len(q.Holders()) != 0 || q.Waiting() != 1 || len(q.Dead) != 1 {
					t.Fatalf("%+v, %v", q, err)
				}
				d := q.Dead[0]
				if d.Lease != gone || d.Revision != lk.Token().Revision() || d.Shared || d.LockDelay != lockDelay ||
					d.ToldWithin != lockDelay+6*time.Second {
					t.Errorf("%+v", d)
				}
				for s, err := range adm.List(t.Context(), holdfast.KindLock, "") { // it lists no prefixes
					if err != nil || s.Held || s.Holder.Owner != "b" || s.Waiting != 1 {
						t.Errorf("listed as %+v, %v", s, err)
					}
				}
				expect(t, told, "lost a 1")
				time.Sleep(lockDelay)
				expect(t, told, "acquired b 0")
				q, err = adm.Show(t.Context(), kind, at.name)
				if h, held := q.Holder(); err != nil || !held || h.Owner != "b" || len(q.Dead) != 0 {
					t.Errorf("%+v, %v", q, err)
				}
				cancel()
				expect(t, told, "error: context canceled")
			})
		})
	}
}

// A claim that a crash has left is shown, though none waits.
func TestClaimThatACrashHasLeftIsShownWhileNobodyWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		mustLock(t, a, "x")
		gone := a.Lease()
		srv.Revoke(gone)
		q, err := adm.Show(t.Context(), holdfast.KindLock, "x")
		if err != nil || len(q.Entries) != 0 || len(q.Dead) != 1 || q.Dead[0].Lease != gone {
			t.Errorf("%+v, %v", q, err)
		}
		for s := range adm.List(t.Context(), holdfast.KindLock, "") {
			t.Errorf("listed: %+v", s)
		}
	})
}

// Close revokes the lease of the claims first. Nothing is lost by it, and none waits longer.
func TestWatchTakesNoCloseForALoss(t *testing.T) {
	for kind, at := range places {
		t.Run(string(kind), func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
				a, _ := newSession(t, srv, "a")
				b, _ := newSession(t, srv, "b")
				if _, err := at.mutex(a).Lock(t.Context()); err != nil {
					t.Fatal(err)
				}
				queueFor(t, at.mutex(b))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				told := watch(t, adm.Events(ctx, kind, at.name))
				expect(t, told, "queued a 0, queued b 1, acquired a 1")
				if err := a.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				expect(t, told, "released a 0, acquired b 0")
				cancel()
				expect(t, told, "error: context canceled")
			})
		})
	}
}

// An entry deleted by hand is lost: its claim stands, and the next one waits.
func TestEventsTellADeletionByHandAsALoss(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		lk, _ := queueUp(t, "x", a, b)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		told := watch(t, adm.Events(ctx, holdfast.KindLock, "x"))
		expect(t, told, "queued a 0, queued b 1, acquired a 1")
		srv.Delete(lk.Key())
		<-lk.Done() // and then its session deletes its claim
		expect(t, told, "lost a 1, acquired b 0")
		cancel()
		expect(t, told, "error: context canceled")
	})
}

// Without its claim an entry is marked: if it is lost, none is delayed. One that was moved has none, and no mark.
func TestEntryWithoutAClaimIsMarked(t *testing.T) {
	for kind, at := range places {
		t.Run(string(kind), func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
				a, _ := newSession(t, srv, "a")
				lk, err := at.mutex(a).With(locker.Options{MinHold: time.Minute}).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				marked := func() bool {
					t.Helper()
					q, err := adm.Show(t.Context(), kind, at.name)
					if err != nil || len(q.Entries) != 1 {
						t.Fatalf("%+v, %v", q, err)
					}
					return q.Entries[0].Unclaimed
				}
				if marked() {
					t.Error("marked although its claim stands")
				}
				claims := srv.Keys(at.claim)
				if len(claims) != 1 {
					t.Fatal(claims)
				}
				srv.Revoke(clientv3.LeaseID(claims[0].Lease))
				if !marked() {
					t.Error("not marked without its claim")
				}
				if err := lk.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				if marked() {
					t.Error("marked although MinHold has moved it")
				}
			})
		})
	}
}

// The mark is on the entries of that session alone, on those that hold and on those that wait, of every kind.
func TestEachEntryOfASessionThatLostItsClaimsIsMarked(t *testing.T) {
	for kind, acquire := range map[holdfast.Kind]func(context.Context, *session.Session) error{
		holdfast.KindLock: func(ctx context.Context, s *session.Session) error {
			_, err := locker.NewRWMutex(s, "x").Lock(ctx)
			return err
		},
		holdfast.KindElection: func(ctx context.Context, s *session.Session) error {
			_, err := election.New(s, "x").With(election.Options{Value: "v"}).Campaign(ctx)
			return err
		},
		holdfast.KindSemaphore: func(ctx context.Context, s *session.Session) error {
			_, err := locker.NewSemaphore(s, "x", 1).Acquire(ctx, 1)
			return err
		},
	} {
		t.Run(string(kind), func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
				for i, owner := range []string{"a", "b", "c"} {
					sess, _ := newSession(t, srv, owner)
					if i == 0 {
						if err := acquire(t.Context(), sess); err != nil {
							t.Fatal(err)
						}
						continue
					}
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan struct{})
					go func() {
						defer close(done)
						_ = acquire(ctx, sess) // it waits until the test ends
					}()
					t.Cleanup(func() { cancel(); <-done })
					time.Sleep(100 * time.Millisecond)
				}
				marks := func() (marks string) {
					t.Helper()
					q, err := adm.Show(t.Context(), kind, "x")
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range q.Entries {
						if marks += e.Owner; e.Unclaimed {
							marks += "!"
						}
					}
					return marks
				}
				if got := marks(); got != "abc" {
					t.Errorf("%s, want no mark", got)
				}
				var claims []clientv3.LeaseID // in the order of the queue
				for _, kv := range srv.Keys("holdfast/") {
					if strings.Contains(string(kv.Key), "/@claim/") {
						claims = append(claims, clientv3.LeaseID(kv.Lease))
					}
				}
				slices.Sort(claims) // a session that began later has a later lease
				for i, want := range []string{"a!bc", "a!b!c", "a!b!c!"} {
					if srv.Revoke(claims[i]); marks() != want {
						t.Errorf("%s, want %s", marks(), want)
					}
				}
			})
		})
	}
}

// An entry of etcd's own clients has no claim, and no mark. Nor has one that an administrator is removing.
func TestEntryThatNeedsNoClaimIsNotMarked(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		if _, err := srv.Client(t).Put(t.Context(), "/app/x/694d", ""); err != nil {
			t.Fatal(err)
		}
		if q, err := adm.Show(t.Context(), admin.LockAt, "/app/x"); err != nil || len(q.Entries) != 1 ||
			q.Entries[0].Unclaimed {
			t.Errorf("%+v, %v", q.Entries, err)
		}
		sess, link := newSession(t, srv, "a")
		lk, err := locker.NewMutex(sess, "x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		link.Cut() // it cannot let go
		if err := adm.Remove(t.Context(), holdfast.KindLock, "x", lk.Token(), "test"); err != nil {
			t.Fatal(err)
		}
		if q, err := adm.Show(t.Context(), holdfast.KindLock, "x"); err != nil || len(q.Entries) != 1 ||
			q.Entries[0].Unclaimed || !q.Entries[0].Notice.Removed {
			t.Errorf("%+v, %v", q.Entries, err)
		}
	})
}

// Entries and claims come in pages, each with its own.
func TestShowReadsAllPagesOfClaims(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		cli := srv.Client(t)
		for i := range 1500 {
			id := fmt.Sprintf("%x-AAAAAAAAAAAAAAAA", i+1)
			ops := []clientv3.Op{clientv3.OpPut("holdfast/lock/x/@claim/"+id, "{}")}
			if i%2 == 1 {
				ops = append(ops, clientv3.OpPut("holdfast/lock/x/@/"+id, `{"v":2,"queued_at":"2026-01-31T12:00:00Z"}`))
			}
			if _, err := cli.Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
		}
		q, err := adm.Show(t.Context(), holdfast.KindLock, "x")
		if err != nil || len(q.Entries) != 750 || len(q.Dead) != 750 || q.Waiting() != 750 {
			t.Errorf("%d entries, %d dead claims, %v", len(q.Entries), len(q.Dead), err)
		}
		for _, e := range q.Entries {
			if e.Unclaimed {
				t.Fatalf("%v is marked although its claim stands", e)
			}
		}
	})
}
