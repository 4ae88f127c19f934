package permits_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/permits"
)

func permitOf(lease clientv3.LeaseID, created int64) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key: fmt.Appendf(nil, "%s1-%x-AAAAAAAAAAAAAAAA", at.Entries, int64(lease)), CreateRevision: created,
	}
}

func deletion(kv *mvccpb.KeyValue, revision int64) *clientv3.Event {
	return &clientv3.Event{
		Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: kv.Key, ModRevision: revision},
	}
}

func TestAccountKnowsUpToWhereRevokedPermitsWereWaitedFor(t *testing.T) {
	gone := []permits.Gone{{At: 8}}
	for name, c := range map[string]struct {
		account    permits.Account
		runs       bool
		now, after int64
	}{
		"all that it heard":           {permits.Account{Served: 5, Heard: 9}, false, 9, 9},
		"one is to be judged":         {permits.Account{Served: 5, Heard: 9, Gone: gone}, false, 5, 9},
		"the delay runs":              {permits.Account{Served: 5, Due: 7, Heard: 9}, true, 5, 9},
		"the delay is over":           {permits.Account{Served: 5, Due: 7, Heard: 9, Gone: gone}, false, 7, 9},
		"unknown, one to be judged":   {permits.Account{Heard: 9, Gone: gone}, false, 0, 0},
		"unknown, and the delay runs": {permits.Account{Due: 7, Heard: 9}, true, 0, 0},
	} {
		if got := c.account.ServedNow(c.runs); got != c.now {
			t.Errorf("%s: served up to %d, want %d", name, got, c.now)
		}
		delayed := c.account
		delayed.Delay(c.runs)
		if delayed.Served != c.now || delayed.Due != 9 || len(delayed.Gone) != 0 {
			t.Errorf("%s: once that is delayed for, %+v", name, delayed)
		}
		if c.account.Acquit(c.runs); c.account.Served != c.after || len(c.account.Gone) != 0 {
			t.Errorf("%s: once that is judged, %+v, want served up to %d", name, c.account, c.after)
		}
	}
}

// What has gone is found by a read, or told by an event; each permit once.
func TestAccountOfWhatGoes(t *testing.T) {
	one, two, three, four := permitOf(1, 11), permitOf(2, 12), permitOf(3, 13), permitOf(4, 14)
	foreign := &mvccpb.KeyValue{Key: []byte(at.Entries + "by-hand"), CreateRevision: 15}
	account := permits.AccountFrom(20, false)
	account.Begin(permits.Seen{Ahead: []*mvccpb.KeyValue{one, two, three, foreign}, All: true})
	account.Hear(deletion(one, 5)) // an earlier entry at that key, told late
	if len(account.Gone) != 0 || account.Sum != permits.Weights(account.Stand) || len(account.Stand) != 4 {
		t.Errorf("after an event that is older than the permit: %+v", account)
	}
	account.Look([]*mvccpb.KeyValue{two}, account.Stand, 25)
	found := []permits.Gone{{Entry: one, Lease: 1}, {Entry: three, Lease: 3}}
	if !slices.Equal(account.Gone, found) || account.Heard != 25 {
		t.Errorf("after a read: %+v", account)
	}
	account.Look([]*mvccpb.KeyValue{two, four}, []*mvccpb.KeyValue{two, four}, 25)
	for _, at := range []int64{24, 30} { // the second is of a later entry at that key
		account.Hear(deletion(one, at))
		account.Hear(deletion(two, at+2))
	}
	heard := []permits.Gone{{Entry: one, Lease: 1, At: 24}, found[1], {Entry: two, Lease: 2, At: 26}}
	if !slices.Equal(account.Gone, heard) {
		t.Errorf("after the events: %+v", account)
	}
	if account.Sum != 1 || len(account.Stand) != 1 || !account.All {
		t.Errorf("one stands, and it knows of %+v", account)
	}
}

// A session has several permits, and etcd bounds the comparisons of a Txn.
func TestEachSessionThatHasGoneIsComparedOnce(t *testing.T) {
	t.Parallel()
	keyOf := func(lease clientv3.LeaseID) string { return fmt.Sprint("session", lease) }
	var account permits.Account
	for range 2 {
		for i := range clientv3.LeaseID(permits.MaxSessions) {
			account.Gone = append(account.Gone, permits.Gone{Lease: i + 1})
		}
	}
	cmps, ok := account.SessionsStand(keyOf)
	if len(cmps) != permits.MaxSessions || !ok {
		t.Errorf("%d comparisons, %v; want %d", len(cmps), ok, permits.MaxSessions)
	}
	want := clientv3.Compare(clientv3.CreateRevision("session1"), ">", 0)
	if !reflect.DeepEqual(cmps[0], want) {
		t.Errorf("compared: %v, want %v", cmps[0], want)
	}
	account.Gone = append(account.Gone, permits.Gone{Lease: 1 << 40})
	if _, ok := account.SessionsStand(keyOf); ok {
		t.Errorf("%d sessions are compared in one Txn", permits.MaxSessions+1)
	}
}
