package permits

import (
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/reads"
)

// MaxSessions is how many sessions one Txn compares at most: each session key takes an operation of its own.
const MaxSessions = 64

// Account is what the first waiter knows of the permits ahead of it: which stand, which have gone and are still to be
// judged, and which of them have cost it the lock delay.
type Account struct {
	Served int64 // each revoked permit that went before this revision was waited for; 0: that is not known
	Due    int64 // what has gone before this revision is waited for when the lock delay is over
	Heard  int64 // each deletion up to this revision is known

	All   bool               // Stand is what stands ahead; otherwise what stood as of Heard is still to be read
	Stand []*mvccpb.KeyValue // as of Heard
	Sum   int                // of their weights

	Gone []Gone // since Served, and not judged yet
}

// Gone is a permit ahead that has gone.
type Gone struct {
	Entry *mvccpb.KeyValue
	Lease clientv3.LeaseID
	At    int64 // the revision of the deletion; 0: it is not known
}

// AccountFrom returns an account that begins at a revision. With delay, what went before is not known, and the lock
// delay has begun for it.
func AccountFrom(revision int64, delay bool) Account {
	if delay {
		return Account{Heard: revision, Due: revision}
	}
	return Account{Heard: revision, Served: revision}
}

// Begin records what was read of the permits that stood when the account began.
func (a *Account) Begin(seen Seen) { a.stand(seen.Ahead, seen.All) }

func (a *Account) stand(entries []*mvccpb.KeyValue, all bool) {
	a.Stand, a.All, a.Sum = entries, all, Weights(entries)
}

// Look records which permits stand at a revision. Of those that stood before, the others have gone.
func (a *Account) Look(stand, stood []*mvccpb.KeyValue, revision int64) {
	for _, kv := range stood {
		same := func(other *mvccpb.KeyValue) bool { return reads.IsEntry(other, kv.CreateRevision) }
		if !slices.ContainsFunc(stand, same) {
			a.add(kv, 0)
		}
	}
	a.stand(stand, true)
	a.Heard = revision
}

// Hear records what a watch tells of a permit, if that is a deletion.
func (a *Account) Hear(event *clientv3.Event) {
	at := event.Kv.ModRevision
	for i, kv := range a.Stand {
		if reads.IsEnd(event, kv.Key, kv.CreateRevision) {
			a.stand(slices.Delete(slices.Clone(a.Stand), i, i+1), a.All)
			a.add(kv, at)
			return
		}
	}
	for i := range a.Gone { // the look after the watch stood has found it before
		if g := &a.Gone[i]; reads.IsEnd(event, g.Entry.Key, g.Entry.CreateRevision) && g.At == 0 {
			g.At = at
		}
	}
}

// add adds a permit that has gone.
func (a *Account) add(kv *mvccpb.KeyValue, at int64) {
	if lease, ours := layout.LeaseOf(string(kv.Key)); ours {
		a.Gone = append(a.Gone, Gone{kv, lease, at})
	}
}

// ServedNow is Served by what is known now, and by whether the lock delay runs or is over.
func (a *Account) ServedNow(delayRuns bool) int64 {
	if delayRuns {
		return a.Served
	}
	served := max(a.Served, a.Due)
	if len(a.Gone) == 0 {
		served = max(served, a.Heard)
	}
	return served
}

// Acquit records that what has gone needs no lock delay: it was released.
func (a *Account) Acquit(delayRuns bool) {
	a.Served, a.Gone = a.ServedNow(delayRuns), nil
	if a.Served != 0 {
		a.Served = max(a.Served, a.Heard)
	}
}

// Delay records that the lock delay begins for what has gone.
func (a *Account) Delay(delayRuns bool) {
	a.Served = a.ServedNow(delayRuns)
	a.Due, a.Gone = a.Heard, nil
}

// SessionsStand is true in a Txn while the sessions exist whose permits have gone. keyOf names the session key of a
// lease. It returns false if there are too many.
func (a *Account) SessionsStand(keyOf func(clientv3.LeaseID) string) (cmps []clientv3.Cmp, ok bool) {
	var leases []clientv3.LeaseID
	for _, g := range a.Gone {
		leases = append(leases, g.Lease)
	}
	slices.Sort(leases)
	leases = slices.Compact(leases)
	for _, lease := range leases {
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(keyOf(lease)), ">", 0))
	}
	return cmps, len(leases) <= MaxSessions
}
