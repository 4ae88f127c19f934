package queue

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/leftovers"
)

// suspect is an entry as package leftovers sees it: see leftovers.Suspect, and entry.Log.
type suspect struct{ *entry }

func (e suspect) Key() string { return e.home }

func (e suspect) Keys() []string {
	at := e.q.At
	keys := []string{e.home}
	if claim := e.q.claimKey(e.home); claim != "" {
		keys = append(keys, claim)
	}
	if at.Kind == holdfast.KindSemaphore {
		turn := at.TurnKey(e.home)
		keys = append(keys, turn, at.ClaimKey(turn))
	}
	return keys
}

func (e suspect) Lease() *lease.Lease { return e.of.lease }

func (e suspect) InFlight() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stage < created
}

func (e suspect) UnansweredAt() int64 { return e.of.unansweredAt }

func (e suspect) Kept() int64 {
	if e.taken.moved {
		return e.rev
	}
	return 0
}

// RemoveFound does it as an attempt does that gives up.
func (e suspect) RemoveFound(kv *mvccpb.KeyValue) {
	at, key := e.q.At, string(kv.Key)
	if at.IsClaim(key) {
		key = at.EntryOf(key)
	}
	found := &entry{
		q: e.q, of: e.of, entryKeys: entryKeys{key, e.q.claimKey(key), e.home, e.id}, rev: kv.CreateRevision, stage: created,
	}
	found.wait.e = found
	if !e.q.shared.keys.Register(e.home, e.of.lease, suspect{found}) {
		return // the scanner has just claimed the key, and will have it removed
	}
	e.q.host.Go(func(context.Context) { _ = found.remove(e.of.lease.Context()) }) // ends with the lease
}

// orphan is an entry that no attempt accounts for. It has no id: copies of it may still arrive, so the key is not used
// again.
func (s *shared) orphan(at layout.Queue, key string, lease *lease.Lease) leftovers.Suspect {
	scope := ahead.Scope{At: at, Reader: layout.IsReader(key)}
	q := &Queue{host: s.host, shared: s, Scope: scope}
	if s.isUnclaimed(at) {
		q = q.withoutClaims()
	}
	keys := entryKeys{key, q.claimKey(key), key, ""}
	return suspect{&entry{q: q, of: &attempt{lease: lease}, entryKeys: keys, stage: ended}}
}

// entriesOf returns the entries of a lease that the session accounts for.
func (s *shared) entriesOf(lease *lease.Lease) (entries []*entry) {
	for _, e := range s.keys.Of(lease) {
		entries = append(entries, e.(suspect).entry)
	}
	return entries
}
