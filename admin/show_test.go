package admin_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/lastrun"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestShowTellsTheHolderThenTheWaitersInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		c, _ := newSession(t, srv, "c")
		began := time.Now()
		lk, _ := queueUp(t, "billing/job-7", a, b, c)
		time.Sleep(3 * time.Second) // the entry says since when it is held
		q, err := adm.Show(t.Context(), holdfast.KindLock, "billing/job-7")
		if err != nil {
			t.Fatal(err)
		}
		var owners []string
		for _, e := range q.Entries {
			owners = append(owners, e.Owner)
			early := e.QueuedAt.Before(began.Truncate(time.Millisecond))
			if e.Foreign || e.TTL <= 0 || e.TTL > session.DefaultTTL || early || e.PID == 0 {
				t.Errorf("entry %+v", e)
			}
		}
		if !slices.Equal(owners, []string{"a", "b", "c"}) || q.Waiting() != 2 {
			t.Errorf("owners %v, %d waiting", owners, q.Waiting())
		}
		h, held := q.Holder()
		if !held || h.Token != lk.Token() || h.Lease != a.Lease() || h.HeldAt.IsZero() || !q.Entries[1].HeldAt.IsZero() {
			t.Errorf("holder %+v, token %v", h, lk.Token())
		}
		if s := h.String(); !strings.Contains(s, `owner "a"`) || !strings.Contains(s, "held since") {
			t.Error(s)
		}
	})
}

func TestShowOfAQueueOfThousandsIsReadInPagesAtOneRevision(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		for i := range 2500 {
			srv.Put(fmt.Sprintf("/locks/x/%04d", (i*1237)%2500), "")
		}
		q, err := adm.Show(t.Context(), admin.LockAt, "/locks/x")
		if err != nil || len(q.Entries) != 2500 {
			t.Fatalf("%d entries, %v", len(q.Entries), err)
		}
		if !slices.IsSortedFunc(q.Entries, func(a, b admin.Entry) int { return int(a.Revision - b.Revision) }) {
			t.Error("not in the order of the queue")
		}
		if e := q.Entries[0]; !e.Foreign || e.TTL != 0 || e.Token != holdfast.Token(e.Revision) {
			t.Errorf("%+v", e)
		}
	})
}

func TestShowOfAnEmptyQueueIsNoError(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		q, err := adm.Show(t.Context(), holdfast.KindElection, "nothing")
		if _, held := q.Holder(); held || err != nil || q.Revision == 0 || q.Waiting() != 0 {
			t.Errorf("%+v, %v", q, err)
		}
	})
}

func TestTokenIsThatOfTheEpochWhenTheEntryQueued(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		b, _ := newSession(t, srv, "b")
		lk, _ := queueUp(t, "x", a)
		if _, err := etcdfence.BumpEpoch(t.Context(), srv.Link().Client(), "", 3, nil); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = locker.NewMutex(b, "x").Lock(t.Context()) }()
		time.Sleep(time.Second)
		q, err := adm.Show(t.Context(), holdfast.KindLock, "x")
		if err != nil {
			t.Fatal(err)
		}
		if q.Entries[0].Token != lk.Token() || q.Entries[1].Token>>48 != 3 {
			t.Errorf("tokens %v and %v, the holder's is %v", q.Entries[0].Token, q.Entries[1].Token, lk.Token())
		}
	})
}

// The epoch that a holder has queued under is not known once etcd has compacted it. Its revision names it then.
func TestHolderWhoseEpochIsCompactedIsKickedAndRemovedByItsRevision(t *testing.T) {
	whileHeld(t, func(t *testing.T, j *job) {
		if _, err := etcdfence.BumpEpoch(t.Context(), j.srv.Link().Client(), "", 3, nil); err != nil {
			t.Fatal(err)
		}
		j.srv.Compact()
		q, err := j.ops.Show(t.Context(), holdfast.KindLock, "job")
		h, _ := q.Holder()
		if err != nil || h.Token != 0 {
			t.Fatalf("token %v, %v: the epoch is known", h.Token, err)
		}
		if err := j.ops.Kick(t.Context(), holdfast.KindLock, "job", h.Token, "deploy"); !strings.Contains(
			err.Error(), "Entry.Revision") {
			t.Errorf("without a token: %v", err)
		}
		by := holdfast.Token(h.Revision)
		if err := j.ops.Kick(t.Context(), holdfast.KindLock, "job", by+1, "deploy"); !errors.Is(err, admin.ErrNotHeld) {
			t.Errorf("by another revision: %v", err)
		}
		if err := j.ops.Kick(t.Context(), holdfast.KindLock, "job", by, "deploy"); err != nil {
			t.Fatal(err)
		}
		ends(t, j.lk, holdfast.CauseKicked)
		if err := j.ops.Remove(t.Context(), holdfast.KindLock, "job", by, "wedged"); err != nil {
			t.Error(err)
		}
	})
}

func TestShowTellsTheLastRunOfAJobAlsoWhileItsNameIsFree(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *etcdfake.Server, adm *admin.Client) {
		a, _ := newSession(t, srv, "a")
		lk, _ := queueUp(t, "nightly", a)
		for _, held := range []bool{true, false} {
			if !held {
				if err := lk.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else if err := lastrun.Record(t.Context(), lk, "2026-03-29", time.Hour); err != nil {
				t.Fatal(err)
			}
			q, err := adm.Show(t.Context(), holdfast.KindLock, "nightly")
			r := q.LastRun
			if err != nil || r.Slot != "2026-03-29" || r.Owner != "a" || r.Token != lk.Token() || r.Due.Sub(r.At) != time.Hour {
				t.Errorf("held %v: %+v, %v", held, r, err)
			}
			if text := r.String(); !strings.Contains(text, `slot "2026-03-29", owner "a"`) || !strings.Contains(text, "due by") {
				t.Error(text)
			}
			if _, isHeld := q.Holder(); isHeld != held || len(q.Entries) > 1 {
				t.Errorf("the record is no entry: %+v", q.Entries)
			}
		}
		for s, err := range adm.List(t.Context(), holdfast.KindLock, "") {
			t.Errorf("no name has entries: %+v, %v", s, err)
		}
		srv.Put("holdfast/lock/nightly/@run", "by hand")
		if q, err := adm.Show(t.Context(), holdfast.KindLock, "nightly"); err != nil || q.LastRun.Known() {
			t.Errorf("%+v, %v", q.LastRun, err)
		}
	})
}
