package hold

import (
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// Replies come in any order, and goroutines note them at once.
func TestNewestRevisionThatWasSeenStays(t *testing.T) {
	t.Parallel()
	for range 5000 {
		e := new(heldEntry)
		var both sync.WaitGroup
		for _, rev := range []int64{4, 5} {
			both.Go(func() { e.noteModified(rev) })
		}
		both.Wait()
		if e.noteModified(3); e.modified.Load() != 5 {
			t.Fatalf("after 3, 4 and 5 it is %d", e.modified.Load())
		}
	}
}

// Another client writes into the entry of a leader under a foreign prefix what looks like ours with a notice. The poll
// reads it, once, and the leader goes on.
func TestPollUnderAPrefixFindsWhatLooksLikeANotice(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		h, err := Acquire(t.Context(), queue.At(p.Host, holdfast.KindElection, "/legacy/x"), Request{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // the value has no place for it since when it is held
		if version := srv.Keys(h.Key())[0].Version; version != 1 {
			t.Errorf("the entry has version %d, and only this session has written it", version)
		}
		p.Plan(nil)
		looks := layout.Value{Queued: time.Now(), Notice: layout.Notice{By: "ops", Reason: "deploy", At: time.Now()}}
		if _, err := srv.Client(t).Put(t.Context(), h.Key(), looks.Encode(), clientv3.WithIgnoreLease()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		mod, reads := srv.Keys(h.Key())[0].ModRevision, p.Counts()["read"]
		if h.Check() != nil || h.known() != mod || reads != 1 {
			t.Errorf("Check: %v; known %d, at %d; %d reads", h.Check(), h.known(), mod, reads)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An update of a leader under a foreign prefix finds a value of another client, which looks like ours with a notice.
func TestUpdateUnderAPrefixReplacesWhatLooksLikeANotice(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		h, err := Acquire(t.Context(), queue.At(p.Host, holdfast.KindElection, "/legacy/x"), Request{})
		if err != nil {
			t.Fatal(err)
		}
		looks := layout.Value{Queued: time.Now(), Notice: layout.Notice{By: "ops", Reason: "deploy", At: time.Now()}}
		if _, err := srv.Client(t).Put(t.Context(), h.Key(), looks.Encode(), clientv3.WithIgnoreLease()); err != nil {
			t.Fatal(err)
		}
		err = h.Update(kit.Within(t, time.Minute), "new")
		if value := string(srv.Keys(h.Key())[0].Value); err != nil || h.Check() != nil || value != "new" {
			t.Errorf("Update: %v; Check: %v; the entry says %q", err, h.Check(), value)
		}
	})
}

// The hold may end between two tries of an update.
func TestUpdateSendsNothingOnceTheHoldHasEnded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		h, err := Acquire(t.Context(), queue.New(p.Host, holdfast.KindElection, "x"), Request{})
		if err != nil {
			t.Fatal(err)
		}
		u := update{hold: h, value: "new"}
		h.stop(holdfast.ErrReleased)
		p.Plan(nil)
		if err := u.try(t.Context()); err != holdfast.ErrReleased || len(p.Counts()) != 0 {
			t.Errorf("%v; sent %v", err, p.Counts())
		}
		h.removal.inBackground()
	})
}
