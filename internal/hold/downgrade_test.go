package hold_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func mustAcquireDowngradable(t *testing.T, p *holdtest.Process, r hold.Request) *hold.Hold {
	t.Helper()
	return holdtest.MustAcquireSet(t, p.Queue("x").Downgradable(), r)[0]
}

// downgraded checks what Downgrade returned: a reader that is held, or a loss and nothing.
func downgraded(t *testing.T, h, reader *hold.Hold, err error) (ok bool) {
	t.Helper()
	switch {
	case h.Check() == nil:
		t.Error("the writer holds after Downgrade")
	case err == nil && reader.Check() != nil:
		t.Errorf("Downgrade returned a reader that is over: %v", reader.Check())
	case err != nil && !errors.Is(err, holdfast.ErrLost):
		t.Errorf("Downgrade: %v", err)
	}
	return err == nil
}

// Whatever becomes of the request, the reader holds without a gap, the writer behind waits, and nothing is left.
func TestDowngradeWhoseRequestIsNotAnswered(t *testing.T) {
	lostRequest := etcdfake.Fate{LoseRequest: true}
	for name, fate := range map[string]etcdfake.Fate{
		"answered": {}, "reply lost": holdtest.LostReply, "request lost": lostRequest, "silent": holdtest.Silence,
		"no reply": {LoseReply: true, Silent: true}, "late": {Request: 3 * time.Second},
	} {
		for _, patience := range []time.Duration{0, kit.OneWay, time.Minute} {
			t.Run(name, func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
					h := mustAcquireDowngradable(t, p, hold.Request{})
					behind := holdtest.AcquireLater(kit.Within(t, time.Hour), other.Queue("x"))
					kit.Queued(t, srv, holdtest.EntriesX, 3)
					p.PlanOne("remove", fate)
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					reader, err := h.Downgrade(ctx)
					if !downgraded(t, h, reader, err) {
						t.Fatal(err)
					}
					time.Sleep(20 * time.Second)
					holdtest.StaysQueued(t, behind, "the writer")
					if kvs := kit.Standing(srv, "x"); len(kvs) != 2 || string(kvs[0].Key) != reader.Key() {
						t.Errorf("entries: %v", kit.KeysOf(kvs))
					}
					if err := reader.Check(); err != nil {
						t.Error(err)
					}
					holdtest.MustRelease(t, reader)
					r := holdtest.Granted(t, srv, behind)
					holdtest.Delayed(t, r, srv, reader.Key(), false)
					holdtest.MustRelease(t, r.H)
					time.Sleep(time.Minute)
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

// At any moment around Downgrade the lease is revoked, an entry is deleted by hand, the writer releases, or an
// administrator asks for the lock. A reader that is held afterwards has an entry, or is told within two seconds.
func TestDowngradeRacesWithTheEndOfTheHold(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, srv *etcdfake.Server, p *holdtest.Process, h *hold.Hold){
		"revoked": func(_ *testing.T, srv *etcdfake.Server, p *holdtest.Process, _ *hold.Hold) {
			srv.Revoke(p.Sess.Lease())
		},
		"the reader's entry is deleted": func(_ *testing.T, srv *etcdfake.Server, _ *holdtest.Process, h *hold.Hold) {
			srv.Delete(h.Together()[1].Key())
		},
		"the writer's entry is deleted": func(_ *testing.T, srv *etcdfake.Server, _ *holdtest.Process, h *hold.Hold) {
			srv.Delete(h.Key())
		},
		"released": func(_ *testing.T, _ *etcdfake.Server, _ *holdtest.Process, h *hold.Hold) {
			_ = h.Release(context.Background())
		},
		"kicked": func(t *testing.T, srv *etcdfake.Server, _ *holdtest.Process, h *hold.Hold) {
			for _, kv := range kit.Standing(srv, "x") {
				holdtest.TryNotify(t, srv, kv, layout.Notice{By: "ops",
					Reason: "deploy"}) // the writer's entry may go at this moment
			}
		},
		"closed": func(_ *testing.T, _ *etcdfake.Server, p *holdtest.Process, _ *hold.Hold) {
			_ = p.Sess.Close(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			holdtest.AtEveryMoment(t, -6*kit.OneWay, 6*kit.OneWay,
				func(t *testing.T, srv *etcdfake.Server, offset time.Duration) {
					p := holdtest.Start(t, srv)
					h := mustAcquireDowngradable(t, p, hold.Request{})
					time.Sleep(5 * time.Second) // its entries say since when they are held
					begin := time.Now().Add(8 * kit.OneWay)
					ended := make(chan bool)
					go func() { // joined below
						defer close(ended)
						time.Sleep(time.Until(begin.Add(offset)))
						end(t, srv, p, h)
					}()
					time.Sleep(time.Until(begin))
					reader, err := h.Downgrade(kit.Within(t, time.Minute))
					<-ended
					switch {
					case err == nil:
						time.Sleep(2 * time.Second)
						stands := slices.Contains(kit.KeysOf(kit.Standing(srv, "x")), reader.Key())
						if held := reader.Check() == nil; held && (!stands || name == "kicked" || name == "revoked" || name == "closed") {
							t.Errorf("the reader holds, its entry stands: %v", stands)
						}
						_ = reader.Release(kit.Within(t, time.Minute))
					case !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrReleased):
						t.Errorf("Downgrade: %v", err)
					}
					_ = h.Release(kit.Within(t, time.Minute)) // of a kicked hold
					time.Sleep(time.Minute)
					kit.NothingStands(t, srv)
					if n := h.Polled(); n != 0 {
						t.Errorf("the poller remembers %d holds", n)
					}
				})
		})
	}
}

// A deletion by hand that Downgrade meets is told by it, and leaves the name to those behind at once.
func TestDowngradeFindsThatItsEntryWasDeleted(t *testing.T) {
	for name, gone := range map[string][]int{"the writer's": {0}, "the reader's": {1}, "both": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := mustAcquireDowngradable(t, p, hold.Request{})
				for _, i := range gone {
					srv.Delete(h.Together()[i].Key())
				}
				reader, err := h.Downgrade(kit.Within(t, time.Minute))
				var lost *holdfast.LostError
				if !errors.As(err, &lost) || lost.Cause != holdfast.CauseEntryDeleted || reader != nil {
					t.Errorf("Downgrade: %v, %v", reader, err)
				}
				if err := h.Release(t.Context()); err != nil && !errors.Is(err, holdfast.ErrLost) {
					t.Errorf("Release: %v", err)
				}
				kit.NothingStands(t, srv)
			})
		})
	}
}

// etcd refuses to remove the writer's entry. The reader holds all the same, unless it turns out that an entry was
// deleted by hand.
func TestDowngradeWhoseRequestIsRefused(t *testing.T) {
	for name, deleted := range map[string]bool{"refused": false, "and deleted by hand": true} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				h := mustAcquireDowngradable(t, p, hold.Request{})
				p.KV.Refuse(func(ops []clientv3.Op) error {
					if !slices.ContainsFunc(ops, clientv3.Op.IsDelete) || deleted && !srv.Delete(h.Key()) {
						return nil // it was deleted at the first try
					}
					return rpctypes.ErrPermissionDenied
				})
				reader, err := h.Downgrade(kit.Within(t, time.Minute))
				if ok := downgraded(t, h, reader, err); ok == deleted {
					t.Errorf("Downgrade: %v", err)
				}
				p.KV.Refuse(nil)
				time.Sleep(2 * time.Second)
				want := []string{}
				if !deleted {
					want = []string{reader.Key()}
				}
				if keys := kit.KeysOf(kit.Standing(srv, "x")); !slices.Equal(keys, want) {
					t.Errorf("entries %v, want %v", keys, want)
				}
			})
		})
	}
}

// A notice in the reader's entry that was read for the writer and its reader ends what goes on.
func TestNoticeIsNotForgottenByADowngrade(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustAcquireDowngradable(t, p, hold.Request{})
		time.Sleep(3 * time.Second) // the entries say since when they are held
		before := h.Together()[1]
		holdtest.Notify(t, srv, srv.Keys(before.Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
		// The poller reads the notice after Downgrade has ended the hold, and before the next one is known.
		h.StopWith(holdfast.ErrReleased)
		hold.NoteEntry(before, srv.Keys(before.Key())[0])
		reader := before.GoOn()
		h.Remove()
		lost, after := noticed(t, reader)
		if lost.Cause != holdfast.CauseKicked || after > 2*time.Second {
			t.Errorf("after %v: %v", after, lost)
		}
		_ = reader.Release(kit.Within(t, time.Minute))
		kit.NothingStands(t, srv)
	})
}

// The reader is asked to let go while Downgrade waits for etcd, and then Downgrade finds that the writer's entry was
// deleted. The caller never gets the reader, so the entry that is kept for its Release must go without that.
func TestDowngradeThatFailsKeepsNoEntryForAReaderThatWasKicked(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := mustAcquireDowngradable(t, p, hold.Request{})
		const slow = 3 * time.Second
		p.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if kind == "remove" && n > 1 { // the first one tells that the entry is gone
				f.Request = slow
			}
			return f
		})
		srv.Delete(h.Key())
		time.AfterFunc(kit.OneWay, func() {
			holdtest.Notify(t, srv, srv.Keys(h.Together()[1].Key())[0], layout.Notice{By: "ops", Reason: "deploy"})
		})
		reader, err := h.Downgrade(kit.Within(t, time.Minute))
		if reader != nil || !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Downgrade: %v, %v", reader, err)
		}
		p.Heal()
		time.Sleep(2 * slow)
		kit.NothingStands(t, srv)
	})
}

// MaxHold begins again for the reader, and both holds are recorded.
func TestDowngradedHoldHasItsOwnLimitAndRecords(t *testing.T) {
	for cause, r := range map[holdfast.Cause]hold.Request{
		holdfast.CauseMaxHold: {MaxHold: time.Minute},
	} {
		t.Run(cause.String(), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				records := make(chan audit.Record, 100)
				r.Auditor = audit.Func(func(_ context.Context, r audit.Record) { records <- r })
				h := mustAcquireDowngradable(t, p, r)
				time.Sleep(50 * time.Second)
				began := time.Now()
				reader, err := h.Downgrade(kit.Within(t, time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				select {
				case <-reader.Done():
				case <-time.After(time.Hour):
				}
				var lost *holdfast.LostError
				if after := time.Since(began); after != time.Minute || !errors.As(reader.Check(), &lost) || lost.Cause != cause {
					t.Errorf("after %v: %v", after, reader.Check())
				}
				_ = reader.Release(t.Context())
				time.Sleep(time.Second)
				var events []audit.Event
				for len(records) > 0 {
					events = append(events, (<-records).Event)
				}
				want := []audit.Event{audit.Granted, audit.Granted, audit.Released, audit.Lost}
				if !slices.Equal(events, want) {
					t.Errorf("records %v, want %v", events, want)
				}
			})
		})
	}
}

// The two entries of a downgradable lock have one create revision, and a writer behind may have taken the one for the
// youngest ahead that goes first (of these two, etcd names the first one in order of keys). Its deletion before the
// watch exists must not be missed.
func TestWaiterBehindBothEntriesOfADowngradableLockIsWokenByTheLastOne(t *testing.T) {
	for name, c := range map[string]struct{ watches, compacted bool }{
		"before the watch": {}, "told by the watch": {watches: true}, "and compacted": {watches: true, compacted: true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				holder := kit.Join(t, srv, kit.Entries("other"))
				p := holdtest.Start(t, srv)
				first, last := holdtest.EntriesX+"1-AAAAAAAAAAAAAAAA", holdtest.EntriesX+"2-AAAAAAAAAAAAAAAA"
				if _, err := srv.Client(t).Txn(t.Context()).Then(
					clientv3.OpPut(first, "", clientv3.WithLease(holder.Lease)),
					clientv3.OpPut(last, "", clientv3.WithLease(holder.Lease)),
				).Commit(); err != nil {
					t.Fatal(err)
				}
				if !c.watches {
					p.PlanOne("watch", etcdfake.Fate{Request: 100 * time.Millisecond})
				}
				done := holdtest.AcquireLater(kit.Within(t, time.Minute), p.Queue("x"))
				time.Sleep(50 * time.Millisecond)
				if kvs := kit.Standing(srv, "x"); kvs[2].CreateRevision != kvs[0].CreateRevision+1 {
					t.Fatal("another write came in between: this tests less")
				}
				p.PlanOne("read", etcdfake.Fate{Request: 50 * time.Millisecond})
				srv.Delete(first)
				if c.compacted {
					time.Sleep(10 * kit.OneWay)
					srv.Put("other", "")
					srv.Compact()
				}
				time.Sleep(5 * time.Second)
				holdtest.StaysQueued(t, done, "the waiter")
				srv.Delete(last)
				r := <-done
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if after := r.At.Sub(kit.DeletedAt(t, srv, last)); after > kit.LockDelay+kit.Prompt {
					t.Errorf("granted %v after the last entry ahead had gone", after)
				}
				holdtest.MustRelease(t, r.H)
			})
		})
	}
}
