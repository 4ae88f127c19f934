package etcd_test

import (
	"context"
	"log/slog"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/explain"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// etcd tells a history in pieces of 1,000 revisions, and none is missing; and after a compaction it begins there.
func TestLongHistoryIsToldToItsEnd(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	sess, err := session.New(deadline(t), cli, session.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close(context.Background())
	of := explain.Of{Namespace: "holdfast", Kind: holdfast.KindLock, Name: "busy"}
	const times = 600
	mu, last := locker.NewMutex(sess, "busy"), int64(0)
	for range times {
		lk, err := mu.Lock(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		last = lk.Token().Revision()
		if err := lk.Unlock(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
	story, err := explain.Read(deadline(t), cli, of)
	if err != nil || len(story.Spells) != times || len(story.Free()) != times+1 {
		t.Fatalf("%d spells, %v", len(story.Spells), err)
	}
	for _, s := range story.Spells {
		if s.End != explain.LetGo || s.Held != s.Entry.Revision {
			t.Fatalf("%+v", s)
		}
	}
	if _, err := cli.Compact(deadline(t), last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	story, err = explain.Read(deadline(t), cli, of)
	if err != nil || len(story.Spells) != 1 || story.From != last || story.All {
		t.Errorf("after a compaction: %+v, %v", story, err)
	}
}

// History begins at the present revision after "etcdctl compact" of it, and after an automatic compaction of a store at
// rest. What stands is told, of a name that never was nothing is, and neither waits for the next write.
func TestHistoryThatBeginsAtThePresentIsToldAtOnce(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	lk := mustLock(t, locker.NewMutex(open(t, cli, "a"), "held"))
	defer mustUnlock(t, lk)
	// The last write says since when it is held, a second after the grant.
	shown := <-cli.Watch(deadline(t), lk.Key(), clientv3.WithRev(lk.Token().Revision()+1))
	now := shown.Header.Revision
	if _, err := cli.Compact(deadline(t), now, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	for name, spells := range map[string]int{"held": 1, "never-was": 0} {
		for _, from := range []int64{0, now} {
			of := explain.Of{Namespace: "holdfast", Kind: holdfast.KindLock, Name: name, From: from}
			story, err := explain.Read(deadline(t), cli, of)
			if err != nil || len(story.Spells) != spells || story.From != now || story.To != now {
				t.Errorf("%s, from %d: %+v, %v", name, from, story, err)
			}
		}
	}
}
