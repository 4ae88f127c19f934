package permits_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/permits"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/internal/txns"
)

func sessionOf(lease clientv3.LeaseID) string { return fmt.Sprint("session", int64(lease)) }

func marked(kv *mvccpb.KeyValue, mark int64) *mvccpb.KeyValue {
	v := layout.Value{Queued: time.Now(), Mark: mark}
	return &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision, Value: []byte(v.Encode())}
}

func limitAt(mod int64, permitted, high int) layout.Limit {
	return layout.Limit{Permits: permitted, High: high, Mod: mod}
}

func seenOf(limit layout.Limit, ahead ...*mvccpb.KeyValue) permits.Seen {
	s := permits.Seen{Ahead: ahead, All: true, Limit: limit}
	if len(ahead) > 0 {
		s.Youngest = ahead[len(ahead)-1]
	}
	return s
}

// wantAccount compares what the first waiter knows.
func wantAccount(t *testing.T, name string, got, want permits.Account) {
	t.Helper()
	text := func(a permits.Account) string {
		all := fmt.Sprintf("served up to %d, due %d, heard %d; of weight %d, all %v, stand %v; gone are", a.Served, a.Due,
			a.Heard, a.Sum, a.All, kit.KeysOf(a.Stand))
		for _, g := range a.Gone {
			all += fmt.Sprintf(" %s of %d at %d", g.Entry.Key, g.Lease, g.At)
		}
		return all
	}
	if got, want := text(got), text(want); got != want {
		t.Errorf("%s: it knows\n%s, want\n%s", name, got, want)
	}
}

// The permits one and two were put at revisions 11 and 12, and a permit of weight 1 at 20.
func TestPlaceOfAPermitFollowsFromWhatStoodAheadWhenItWasPut(t *testing.T) {
	t.Parallel()
	one, two := permitOf(1, 11), permitOf(2, 12)
	mark, first, none := marked(two, 17), permits.AccountFrom(20, false), permits.Account{}
	delayed := permits.AccountFrom(20, true)
	for name, c := range map[string]struct {
		seen  permits.Seen
		delay bool
		ahead *mvccpb.KeyValue
		far   bool
		from  permits.Account
	}{
		"alone, it holds":                     {seenOf(limitAt(5, 2, 2)), false, nil, false, first},
		"there is room, and it holds":         {seenOf(limitAt(5, 2, 2), one), false, nil, false, first},
		"the limit has just been raised":      {seenOf(limitAt(25, 2, 2), one), false, one, false, first},
		"the one ahead holds":                 {seenOf(limitAt(5, 2, 2), one, two), false, two, false, first},
		"the one ahead may have held":         {seenOf(limitAt(15, 1, 2), one, two), false, two, false, first},
		"the one ahead waits":                 {seenOf(limitAt(5, 1, 1), one, two), false, two, true, none},
		"the one ahead has held after a wait": {seenOf(limitAt(5, 1, 1), one, mark), false, mark, false, first},
		"what went before is not known":       {seenOf(limitAt(5, 2, 2), one, two), true, two, false, delayed},
	} {
		w := permits.Waiter{Weight: 1}
		ahead := w.Place(c.seen, 20, c.delay)
		if ahead != c.ahead || w.Far != c.far || w.Created != 20 || w.Limit != c.seen.Limit {
			t.Errorf("%s: ahead is %v, and it knows %+v", name, ahead, w)
		}
		if !c.far {
			c.from.Begin(c.seen)
		}
		wantAccount(t, name, w.Account, c.from)
	}
}

// The mark of the entry ahead says up to where it has judged, but of what went before an entry was put, that one has
// nothing to judge.
func TestFirstWaiterGoesOnFromTheMarkButNotFromBeforeItsOwnEntry(t *testing.T) {
	t.Parallel()
	for mark, served := range map[int64]int64{15: 20, 20: 20, 31: 31} {
		w := permits.Waiter{Created: 20, Far: true}
		if w.Lead(mark, false); w.Far {
			t.Errorf("after mark %d it is far", mark)
		}
		wantAccount(t, fmt.Sprint("after mark ", mark), w.Account, permits.AccountFrom(served, false))
	}
}

// The entry ahead of a far one, which was put at revision 20, has gone without a mark at 30.
func TestWaiterDelaysIfTheEntryAheadMayHaveKnownOfOneThatWasRevoked(t *testing.T) {
	t.Parallel()
	one, two := permitOf(1, 11), permitOf(2, 12)
	full, lower := limitAt(5, 2, 2), limitAt(5, 1, 1)
	delayed, own, none := permits.AccountFrom(30, true), permits.AccountFrom(20, false), permits.Account{}
	for name, c := range map[string]struct {
		seen   permits.Seen
		delays bool
		far    bool
		from   permits.Account
	}{
		"nothing stands":           {seenOf(full), true, false, delayed},
		"the next may hold":        {seenOf(full, one, two), true, false, delayed},
		"the next waits":           {seenOf(lower, one, two), false, true, none},
		"the next has an old mark": {seenOf(lower, one, marked(two, 17)), false, false, own},
		"the next has a mark":      {seenOf(lower, one, marked(two, 28)), false, false, own}, // not of those behind it
	} {
		w := permits.Waiter{Created: 20, Far: true}
		if delays := w.AheadWent(c.seen, 30); delays != c.delays || w.Far != c.far || w.Limit != c.seen.Limit {
			t.Errorf("%s: it delays is %v, and it knows %+v", name, delays, w)
		}
		if c.delays {
			c.from.Begin(c.seen)
		}
		wantAccount(t, name, w.Account, c.from)
	}
}

// A permit was put at revision 20 behind one and two. It has looked at 22, at the limit of 21, and found that two had
// gone.
func TestWatchTellsTheFirstWaiterWhatGoesAndTheLimit(t *testing.T) {
	t.Parallel()
	one, two := permitOf(1, 11), permitOf(2, 12)
	told := func(kind mvccpb.Event_EventType, key, value string, revision int64) *clientv3.Event {
		return &clientv3.Event{
			Type: kind, Kv: &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), ModRevision: revision},
		}
	}
	put, deleted, key := clientv3.EventTypePut, clientv3.EventTypeDelete, at.LimitKey()
	known := limitAt(21, 3, 4)
	gone := func(at int64) []permits.Gone { return []permits.Gone{{Entry: two, Lease: 2, At: at}} }
	for name, c := range map[string]struct {
		event *clientv3.Event
		limit layout.Limit
		gone  []permits.Gone
		heard int64
		again bool
		fails bool
	}{
		"a permit goes": {
			deletion(one, 25), known, append(gone(0), permits.Gone{Entry: one, Lease: 1, At: 25}), 25, false, false,
		},
		"when it went that is gone":           {deletion(two, 22), known, gone(22), 22, false, false},
		"and that was before the limit came":  {deletion(two, 20), known, gone(20), 22, false, false},
		"a permit puts a mark":                {told(put, string(one.Key), "", 25), known, gone(0), 25, false, false},
		"the limit changes":                   {told(put, key, "5 6", 25), limitAt(25, 5, 6), gone(0), 25, false, false},
		"what the limit was":                  {told(put, key, "5 6", 19), known, gone(0), 22, false, false},
		"the limit is deleted":                {told(deleted, key, "", 25), known, gone(0), 22, true, false},
		"what is put there cannot be a limit": {told(put, key, "many", 25), known, gone(0), 22, false, true},
	} {
		w := permits.Waiter{Of: permits.New(nil, at, 3), Weight: 1, Created: 20, Limit: known}
		w.Lead(20, false)
		w.Look([]*mvccpb.KeyValue{one}, []*mvccpb.KeyValue{one, two}, 22)
		again, err := w.HearRoom(t.Context(), []*clientv3.Event{c.event})
		if again != c.again || (err != nil) != c.fails {
			t.Errorf("%s: it looks again is %v, %v", name, again, err)
		}
		if w.Limit != c.limit || w.Heard != c.heard || !slices.Equal(w.Gone, c.gone) {
			t.Errorf("%s: it knows %+v", name, w)
		}
	}
}

// Permits of leases 1, 2 and 3 were put, and then the waiter. Of what has happened since, a look at the present and one
// at the past show what has gone.
func TestLookShowsTheFirstWaiterWhatHasGone(t *testing.T) {
	unanswered := errors.New("not answered")
	for name, c := range map[string]struct {
		knowsAll  bool // those that stood; otherwise it has a revision only
		leave     []clientv3.LeaseID
		limit     string // is put
		compacted bool
		lost      bool
		stand     []clientv3.LeaseID
		gone      []clientv3.LeaseID
		delays    bool
		fails     string
	}{
		"nothing has gone": {stand: []clientv3.LeaseID{1, 2, 3}},
		"the oldest and the youngest have gone": {
			leave: []clientv3.LeaseID{1, 3}, stand: []clientv3.LeaseID{2}, gone: []clientv3.LeaseID{1, 3},
		},
		"it cannot be known what has gone": {
			leave: []clientv3.LeaseID{2}, compacted: true, stand: []clientv3.LeaseID{1, 3}, delays: true,
		},
		"what stood is known, and is not read": {
			knowsAll: true, leave: []clientv3.LeaseID{2}, compacted: true,
			stand: []clientv3.LeaseID{1, 3}, gone: []clientv3.LeaseID{2},
		},
		"etcd does not answer":    {lost: true, fails: "not answered"},
		"the limit cannot be one": {limit: "many", fails: "the limit of semaphore"},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				srv.Put(at.LimitKey(), "3 4")
				for lease := range clientv3.LeaseID(4) {
					srv.Put(string(permitOf(lease+1, 0).Key), "") // the last is its own
				}
				stood := srv.Keys(at.Entries)
				w := permits.Waiter{Of: permits.New(nil, at, 3), Weight: 1, Created: stood[3].CreateRevision}
				w.Lead(w.Created, false)
				w.Begin(permits.Seen{Ahead: stood[:3], All: c.knowsAll})
				before := w
				for _, lease := range c.leave {
					srv.Delete(string(permitOf(lease, 0).Key))
				}
				srv.Put(at.LimitKey(), cmp.Or(c.limit, "3 4"))
				if c.compacted {
					srv.Compact()
				}
				cli, now := srv.Client(t), int64(0)
				delays, err := w.LookForRoom(t.Context(), func(ctx context.Context, ask txns.Ops) (txns.Reply, error) {
					if c.lost {
						return txns.Reply{}, unanswered
					}
					r, err := cli.Txn(ctx).Then(ask...).Commit()
					if err != nil {
						return txns.Reply{}, err
					}
					now = r.Header.Revision
					return txns.Reply{Header: r.Header, Responses: r.Responses}, nil
				})
				if delays != c.delays || (err == nil) != (c.fails == "") {
					t.Errorf("it delays is %v, %v", delays, err)
				}
				if err != nil {
					if !strings.Contains(err.Error(), c.fails) || w.Limit != before.Limit {
						t.Errorf("%v; it knows %+v", err, w)
					}
					wantAccount(t, name, w.Account, before.Account)
					return
				}
				want := permits.AccountFrom(now, c.delays)
				if !c.delays {
					want.Served = w.Created
				}
				var stand []*mvccpb.KeyValue
				for _, lease := range c.stand {
					stand = append(stand, stood[lease-1])
				}
				want.Begin(seenOf(w.Limit, stand...))
				for _, lease := range c.gone {
					want.Gone = append(want.Gone, permits.Gone{Entry: stood[lease-1], Lease: lease})
				}
				wantAccount(t, name, w.Account, want)
				if w.Limit != limitAt(now, 3, 4) {
					t.Errorf("the limit is %+v", w.Limit)
				}
			})
		})
	}
}

// Permits have gone at revisions 101, 102 and so on.
func TestWaiterReadsWhetherPermitsWentWithTheirSessions(t *testing.T) {
	t.Parallel()
	unanswered := errors.New("not answered")
	for name, c := range map[string]struct {
		gone  int
		ended clientv3.LeaseID // its session key had gone when its permit did
		err   error            // of the last read
		reads int
		want  bool
		fails error
	}{
		"none has gone":               {},
		"all left in order":           {gone: txns.MaxOps, reads: 1},
		"more than one read asks for": {gone: txns.MaxOps + 1, reads: 2},
		"the last was revoked":        {gone: txns.MaxOps + 1, ended: txns.MaxOps + 1, reads: 2, want: true},
		"the first was revoked":       {gone: txns.MaxOps + 1, ended: 1, reads: 1, want: true},
		"that is compacted":           {gone: 2, err: rpctypes.ErrCompacted, reads: 1, want: true},
		"etcd does not answer":        {gone: 2, err: unanswered, reads: 1, fails: unanswered},
	} {
		var account permits.Account
		for i := range int64(c.gone) {
			account.Gone = append(account.Gone, permits.Gone{Lease: clientv3.LeaseID(i + 1), At: i + 101})
		}
		sent, asked := 0, int64(0)
		ended, err := account.AnyEnded(t.Context(), sessionOf, func(_ context.Context, ask txns.Ops) (txns.Reply, error) {
			sent++
			r := txns.Reply{}
			for _, op := range ask {
				asked++
				lease := clientv3.LeaseID(asked)
				if string(op.KeyBytes()) != sessionOf(lease) || op.Rev() != asked+100 {
					t.Errorf("%s: read %s at %d, want the session of %d", name, op.KeyBytes(), op.Rev(), lease)
				}
				found := &pb.RangeResponse{Count: 1}
				if lease == c.ended {
					found.Count = 0
				}
				r.Responses = append(r.Responses, &pb.ResponseOp{
					Response: &pb.ResponseOp_ResponseRange{ResponseRange: found},
				})
			}
			return r, c.err
		})
		if ended != c.want || !errors.Is(err, c.fails) || sent != c.reads {
			t.Errorf("%s: one has ended is %v, %v, after %d reads; want %v, %v, %d", name, ended, err, sent, c.want, c.fails,
				c.reads)
		}
	}
}

// Up to a revision it has waited for each permit that was revoked. What has gone since may have been released: then it
// may say more, and whether it does, the Txn decides that puts the mark.
func TestMarkOfAFirstWaiterThatGivesUpSaysNoMoreThanItKnows(t *testing.T) {
	t.Parallel()
	one, many := []permits.Gone{{Lease: 1, At: 8}}, []permits.Gone{}
	for lease := range clientv3.LeaseID(permits.MaxSessions + 1) {
		many = append(many, permits.Gone{Lease: lease + 1, At: 8})
	}
	for name, c := range map[string]struct {
		account         permits.Account
		delayRuns       bool
		released, known int64 // the marks that it puts if what has gone was released, and in any case; 0: none
	}{
		"all that has gone was judged":                {permits.Account{Served: 5, Heard: 9}, false, 9, 9},
		"one is to be judged":                         {permits.Account{Served: 5, Heard: 9, Gone: one}, false, 9, 5},
		"another one, after a lock delay":             {permits.Account{Served: 5, Due: 7, Heard: 9, Gone: one}, false, 9, 7},
		"a lock delay is over, for the first":         {permits.Account{Due: 7, Heard: 9, Gone: one}, false, 9, 7},
		"a lock delay runs":                           {permits.Account{Served: 5, Due: 7, Heard: 9, Gone: one}, true, 0, 5},
		"a lock delay runs, for the first":            {permits.Account{Due: 7, Heard: 9, Gone: one}, true, 0, 0},
		"more are to be judged than one Txn compares": {permits.Account{Served: 5, Heard: 9, Gone: many}, false, 0, 5},
	} {
		stands := clientv3.Compare(clientv3.ModRevision("entry"), "=", 3)
		putMark := func(mark int64) clientv3.Op { return clientv3.OpPut("entry", fmt.Sprint("mark", mark)) }
		var want txns.Txn
		if c.known != 0 {
			want = txns.Txn{If: []clientv3.Cmp{stands}, Then: []clientv3.Op{putMark(c.known)}}
		}
		if c.released != 0 {
			inner := clientv3.OpTxn(want.If, want.Then, nil)
			want.Then, want.Else = []clientv3.Op{putMark(c.released)}, []clientv3.Op{inner}
			for _, g := range c.account.Gone {
				want.If = append(want.If, clientv3.Compare(clientv3.CreateRevision(sessionOf(g.Lease)), ">", 0))
			}
		}
		got, ok := c.account.Leave(stands, putMark, c.delayRuns, sessionOf)
		if ok != (c.known != 0) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n%+v, want\n%+v", name, ok, got, want)
		}
	}
}
