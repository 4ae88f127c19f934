package election_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
)

// isNote reports whether a call is the note that writes into entries since when they are held.
func isNote(c etcdfake.Call) bool {
	r, ok := c.Request.(*pb.TxnRequest)
	if !ok || len(r.Success) == 0 {
		return false
	}
	inner := r.Success[0].GetRequestTxn()
	return inner != nil && len(inner.Success) == 1 && inner.Success[0].GetRequestPut().GetIgnoreLease()
}

func TestLeaderTellsWhoItIsAndSinceWhen(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election()
		first := campaign(t, s.other(t), "first")
		told := observe(t, el)
		expect(t, told, "first")
		queued := time.Now()
		c := campaignLater(t.Context(), el, "v")
		time.Sleep(500 * time.Millisecond)
		resign(t, first)
		led := time.Now()
		term := won(t, c)
		l := expect(t, told, "v")
		host, _ := os.Hostname()
		if l.PID != os.Getpid() || l.Host != host || !l.Queued.Equal(queued) || !l.Since.IsZero() {
			t.Errorf("at first %+v", l)
		}
		entry := s.srv.Keys(prefix)[0]
		time.Sleep(3 * time.Second)
		noted, err := el.Leader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !noted.Since.Equal(led) || noted.Revision <= l.Revision {
			t.Errorf("after three seconds %+v; it leads since %v", noted, led)
		}
		kv := s.srv.Keys(prefix)[0]
		if kv.Version != 2 || kv.Lease != entry.Lease || kv.CreateRevision != entry.CreateRevision {
			t.Errorf("entry %v, before %v", kv, entry)
		}
		noted.Since, noted.Revision = l.Since, l.Revision
		if noted != l {
			t.Errorf("%+v, before %+v", noted, l)
		}
		// The note is not reported as a change.
		if err := term.Proclaim(t.Context(), "w"); err != nil {
			t.Fatal(err)
		}
		if l := expect(t, told, "w"); !l.Since.Equal(led) || l.Token != term.Token() {
			t.Errorf("proclaimed %+v", l)
		}
		if kv := s.srv.Keys(prefix)[0]; kv.Version != 3 {
			t.Errorf("%d writes, want three", kv.Version)
		}
	})
}

// A Proclaim writes since when as well, so that no note is needed.
func TestProclaimInTheFirstSecondIsTheOnlyWrite(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election()
		term := campaign(t, el, "v")
		if err := term.Proclaim(t.Context(), "w"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		l, err := el.Leader(t.Context())
		if err != nil || l.Value != "w" || l.Since.IsZero() || s.srv.Keys(prefix)[0].Version != 2 {
			t.Errorf("%+v, %v, %d writes", l, err, s.srv.Keys(prefix)[0].Version)
		}
	})
}

// In either order, the proclaimed value stands.
func TestLateNoteDoesNotUndoAProclaim(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 2 * time.Second} {
		t.Run(fmt.Sprint("by ", late), func(t *testing.T) {
			t.Parallel()
			simulate(t, func(t *testing.T, s *sim) {
				sent := make(chan struct{}, 100)
				s.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					if !isNote(c) {
						return etcdfake.Fate{Request: time.Millisecond, Reply: time.Millisecond}
					}
					sent <- struct{}{}
					return etcdfake.Fate{Request: late, Reply: time.Millisecond}
				})
				el := s.election()
				term := campaign(t, el, "v")
				<-sent
				if err := term.Proclaim(t.Context(), "w"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if l, err := el.Leader(t.Context()); err != nil || l.Value != "w" || l.Since.IsZero() || term.Value() != "v" {
					t.Errorf("%+v, %v", l, err)
				}
				if err := term.Proclaim(t.Context(), "x"); err != nil {
					t.Error(err)
				}
				// The note may have been sent several times before it was answered.
				if n := s.srv.Keys(prefix)[0].Version; n > 4 {
					t.Errorf("%d writes", n)
				}
			})
		})
	}
}

// The next entry may have the same key.
func TestNoteOfAnEndedTermWritesNothing(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		sent := make(chan struct{}, 1)
		s.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			if !isNote(c) {
				return etcdfake.Fate{}
			}
			sent <- struct{}{}
			return etcdfake.Fate{Request: 300 * time.Millisecond}
		})
		el := s.election()
		term := campaign(t, el, "old")
		<-sent
		resign(t, term)
		next := campaign(t, el, "new")
		if next.Key() != term.Key() {
			t.Fatalf("the keys differ, so this test shows nothing: %s, %s", term.Key(), next.Key())
		}
		time.Sleep(500 * time.Millisecond)
		if kvs := s.srv.Keys(prefix); len(kvs) != 1 || kvs[0].Version != 1 {
			t.Errorf("entries %v", kvs)
		}
	})
}

func TestNoteIsRepeatedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		fate  etcdfake.Fate
		notes int
	}{
		"refused":                            {etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}, 1},
		"lost":                               {etcdfake.Fate{LoseRequest: true, Silent: true}, 2},
		"carried out, and the reply is lost": {etcdfake.Fate{LoseReply: true}, 1}, // a poll finds it
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			simulate(t, func(t *testing.T, s *sim) {
				notes := 0 // used by the link only, under its lock
				s.link.Plan(func(c etcdfake.Call) etcdfake.Fate {
					if !isNote(c) {
						return etcdfake.Fate{}
					}
					if notes++; notes == 1 {
						return tc.fate
					}
					return etcdfake.Fate{}
				})
				term := campaign(t, s.election(), "v")
				time.Sleep(30 * time.Second)
				synctest.Wait()
				s.link.Plan(nil)
				if notes != tc.notes {
					t.Errorf("%d notes, want %d", notes, tc.notes)
				}
				if n := s.srv.Keys(prefix)[0].Version; n > 2 || (n == 2) != (what != "refused") {
					t.Errorf("%d writes", n)
				}
				if err := term.Proclaim(t.Context(), "w"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// etcd's own observers read the entry as it is.
func TestEntryAtAForeignPrefixIsTheValueAndNothingElse(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		const lookalike = `{"v":2,"queued_at":"2026-02-03T04:05:06Z","value":"inner"}`
		el := election.NewAt(s.sess, "/legacy/x")
		term := campaign(t, el, lookalike)
		for _, value := range []string{lookalike, "\xff"} {
			time.Sleep(3 * time.Second)
			if kvs := s.srv.Keys("/legacy/x/"); len(kvs) != 1 || string(kvs[0].Value) != value {
				t.Errorf("entries %v, want %q", kvs, value)
			}
			if l, err := el.Leader(t.Context()); err != nil || l.Value != value || l.PID != 0 || !l.Queued.IsZero() {
				t.Errorf("%+v, %v", l, err)
			}
			if err := term.Proclaim(t.Context(), "\xff"); err != nil {
				t.Error(err)
			}
		}
		if n := s.srv.Keys("/legacy/x/")[0].Version; n != 3 {
			t.Errorf("%d writes, want three", n)
		}
	})
}

// Entries of holdfast versions before the format number are the value itself.
func TestEntryOfAnOlderVersionIsReadAsTheValue(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *sim) {
		el := s.election()
		if _, err := el.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
			t.Fatal(err)
		}
		for _, value := range []string{"", "node-1", `{"addr":"10.0.0.1"}`, "\xff\x00"} {
			s.srv.Put(prefix+"1-x", value)
			if l, err := el.Leader(context.Background()); err != nil || l.Value != value || l.PID != 0 || !l.Queued.IsZero() {
				t.Errorf("%q is read as %+v, %v", value, l, err)
			}
		}
	})
}
