package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/view"
)

// Entry is one holder or waiter. TTL is set by Show only, for the first hundred of a queue; it is 0 if the lease is
// gone, or if the role may not ask for it.
type Entry = view.Entry

// Queue is one name's queue as it stood at one revision of etcd.
type Queue struct {
	Kind     holdfast.Kind // Lock also for LockAt, Election for ElectionAt
	Name     string        // or prefix
	Revision int64
	Limit    int     // of a semaphore; 0 for other kinds, or if none stands in etcd
	Entries  []Entry // the holder or holders, then those who wait, in the order in which they will hold

	// Dead are the claims of those who went without a release, oldest first. Below a prefix they are left out if the
	// role may not read them.
	Dead []DeadClaim

	// LastRun is the last run that was recorded for the name (package lastrun), also while no client holds it.
	LastRun view.Run
}

// DeadClaim is what is left of an entry that went without a release: its lease expired or was revoked, or it was
// deleted by hand. Entries behind it do not hold until a client that waits has let the delay pass, and has deleted the
// claim. If none comes, etcd deletes it within minutes.
type DeadClaim struct {
	Key      string           // in etcd
	Lease    clientv3.LeaseID // of the session that held, or waited: its logs name it
	Revision int64            // the create revision, of the entry too
	Shared   bool             // of a reader: it delays no readers

	// LockDelay is the delay if the session of the entry has ended, too; ToldWithin the longest one. A client that waits
	// takes its own if that is longer.
	LockDelay, ToldWithin time.Duration
}

// delays reports whether an entry waits for the claim.
func (d DeadClaim) delays(e Entry) bool {
	// etcd's own clients know no delay, and hold at once.
	return d.Revision < e.Revision && !(d.Shared && e.Shared) && !e.Foreign
}

// Holder returns the first entry if it holds, and false if none does: the queue is empty, or the first entry waits for
// one of Dead.
func (q Queue) Holder() (Entry, bool) {
	if q.holding() == 0 {
		return Entry{}, false
	}
	return q.Entries[0], true
}

// Holders returns the entries that hold: the first, and if that is a reader's, the readers' that follow it. Of a
// semaphore, those that do not wait: after its limit was lowered, more than it allows. None that waits for one of Dead
// holds.
func (q Queue) Holders() []Entry { return q.Entries[:q.holding()] }

// Waiting is the number of entries behind the holder or holders.
func (q Queue) Waiting() int { return len(q.Entries) - q.holding() }

func (q Queue) holding() int {
	if q.Kind != holdfast.KindSemaphore {
		return holding(q.Entries, q.Dead)
	}
	if n := slices.IndexFunc(q.Entries, func(e Entry) bool { return e.Waits }); n >= 0 {
		return n
	}
	return len(q.Entries)
}

// holding returns how many of the first entries of a queue hold, beside those dead claims.
func holding(entries []Entry, dead []DeadClaim) int {
	n := 0
	for _, e := range entries {
		first := n == 0 || e.Shared && entries[0].Shared
		if !first || slices.ContainsFunc(dead, func(d DeadClaim) bool { return d.delays(e) }) {
			break
		}
		n++
	}
	return n
}

// Show reads a queue: one read for each thousand entries, all at one revision, and one request for the
// TTL of each of the first hundred entries' leases; List, Watch and Events ask for none. Goroutines of one
// process that wait for the same name share one entry. A name that is not used has an empty queue,
// which is no error.
//
// Errors: *holdfast.NameError and *holdfast.ArgumentError before anything is sent; ctx's error, with
// what the last attempt met (with etcd out of reach Show tries until then); etcd's where a retry
// cannot help, such as rpctypes.ErrPermissionDenied.
func (c *Client) Show(ctx context.Context, kind holdfast.Kind, name string) (Queue, error) {
	if err := c.usable(ctx); err != nil {
		return Queue{}, err
	}
	q, err := c.find(kind, name)
	if err != nil {
		return Queue{}, err
	}
	l, err := c.list(ctx, q)
	if err == nil {
		err = c.timesToLive(ctx, l.entries[:min(len(l.entries), shownTTLs)])
	}
	if err != nil {
		return Queue{}, fmt.Errorf("show %v: %w", q, err)
	}
	return Queue{
		Kind: q.Kind, Name: q.Name, Revision: l.revision, Limit: l.limit, Entries: l.entries, Dead: l.dead,
		LastRun: l.lastRun,
	}, nil
}

// showPage bounds the entries of one read.
const showPage = 1000

// listing is a queue without TTLs.
type listing struct {
	entries  []Entry
	second   []Entry // the readers' entries of locks that can be downgraded, while their writers' entries are in entries
	dead     []DeadClaim
	claims   map[string]DeadClaim // all claims, by key, until it is known which of them are dead
	unmarked map[string]int64     // the create revisions of claims of turns that never held, by key: none waits for them
	blind    bool                 // the role may not read the claims
	revision int64
	limit    int // of a semaphore
	lastRun  view.Run
}

func newListing(blind bool) listing {
	return listing{claims: make(map[string]DeadClaim), unmarked: make(map[string]int64), blind: blind}
}

// list reads all entries of a queue in order, at one revision.
func (c *Client) list(ctx context.Context, q layout.Keyspace) (l listing, err error) {
	if l, err = c.listAll(ctx, q); err != nil {
		return listing{}, err
	}
	l.judge(q)
	return l, nil
}

// judge tells which claims are dead, and counts the two entries of a lock that can be downgraded as one.
func (l *listing) judge(q layout.Keyspace) {
	l.judgeClaims(q)
	writers := make(map[int64]bool)
	for _, e := range l.entries {
		if !e.Shared {
			writers[e.Revision] = true
		}
	}
	l.entries = slices.DeleteFunc(l.entries, func(e Entry) bool {
		second := e.Shared && writers[e.Revision]
		if second {
			l.second = append(l.second, e)
		}
		return second
	})
}

func (l *listing) addClaim(q layout.Keyspace, kv *mvccpb.KeyValue) {
	if key := string(kv.Key); q.IsTurn(q.EntryOf(key)) && kv.Version == 1 {
		l.unmarked[key] = kv.CreateRevision
	} else {
		l.claims[key] = deadClaim(q, kv)
	}
}

// judgeClaims tells which claims are dead, and which entries have none.
func (l *listing) judgeClaims(q layout.Keyspace) {
	for i := range l.entries {
		e := &l.entries[i]
		key := q.ClaimKey(e.Key)
		if l.claims[key].Revision == e.Revision {
			delete(l.claims, key)
			continue
		}
		if l.unmarked[key] == e.Revision {
			continue
		}
		moved := e.Released() || !e.Notice.Until.IsZero() // its claim was deleted then
		e.Unclaimed = !e.Foreign && !moved && !l.blind
	}
	byAge := func(a, b DeadClaim) int { return cmp.Compare(a.Revision, b.Revision) }
	l.dead = slices.SortedFunc(maps.Values(l.claims), byAge)
}

// listAll is list with all entries in entries, and all claims in claims. The next page begins with the last entry of
// the one before, because two entries may have one create revision.
func (c *Client) listAll(ctx context.Context, q layout.Keyspace) (l listing, err error) {
	var epoch []*mvccpb.KeyValue
	var entriesFrom, claimsFrom int64
	page := func(first, end string, from int64) clientv3.Op {
		return clientv3.OpGet(first, clientv3.WithRange(end), clientv3.WithLimit(showPage), clientv3.WithRev(l.revision),
			clientv3.WithMinCreateRev(from), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	}
	l = newListing(false)
	first, end := q.All()
	if q.Kind == holdfast.KindSemaphore {
		first, end = q.Semaphore() // with claims and the limit between permits and turns
	}
	for more := true; more; {
		ops := []clientv3.Op{page(first, end, entriesFrom), clientv3.OpGet(names.EpochKey(c.namespace))}
		if q.Kind == holdfast.KindSemaphore {
			ops = append(ops, clientv3.OpGet(q.LimitKey()))
		} else if !q.Foreign {
			ops = append(ops, clientv3.OpGet(q.RunKey()))
		}
		if !l.blind {
			claims, end := q.AllClaims()
			ops = append(ops, page(claims, end, claimsFrom))
		}
		resp, err := c.read(ctx, ops...)
		switch {
		case errors.Is(err, rpctypes.ErrCompacted): // between two pages
			l, entriesFrom, claimsFrom = newListing(l.blind), 0, 0
			continue
		case errors.Is(err, rpctypes.ErrPermissionDenied) && q.Foreign && !l.blind:
			l.blind = true
			continue
		case err != nil:
			return listing{}, err
		}
		if l.revision == 0 {
			l.revision, epoch = resp.Header.Revision, resp.Range(1).Kvs
			if !q.Foreign && resp.Range(2).Count > 0 {
				l.readBeside(q, resp.First(2))
			}
		}
		entries := resp.Range(0)
		for _, kv := range entries.Kvs {
			if kv.CreateRevision == entriesFrom && l.has(string(kv.Key)) {
				continue
			}
			if entriesFrom = kv.CreateRevision; q.IsClaim(string(kv.Key)) || string(kv.Key) == q.LimitKey() {
				continue
			}
			e := q.View(kv)
			if q.Kind != holdfast.KindSemaphore { // a permit has no token
				if e.Token, err = c.token(ctx, epoch, kv.CreateRevision); err != nil {
					return listing{}, err
				}
			}
			l.entries = append(l.entries, e)
		}
		more = entries.More && len(entries.Kvs) > 0
		if l.blind {
			continue
		}
		claims := resp.Range(len(ops) - 1)
		for _, kv := range claims.Kvs {
			claimsFrom = kv.CreateRevision
			l.addClaim(q, kv)
		}
		more = more || claims.More && len(claims.Kvs) > 0
	}
	return l, nil
}

// deadClaim is a claim as one that is dead.
func deadClaim(q layout.Keyspace, kv *mvccpb.KeyValue) DeadClaim {
	entry := q.EntryOf(string(kv.Key))
	lease, _ := layout.LeaseOf(entry)
	says := layout.DecodeClaim(kv.Value)
	return DeadClaim{
		Key: string(kv.Key), Lease: cmp.Or(says.Session, lease), Revision: kv.CreateRevision, Shared: layout.IsReader(entry),
		LockDelay: says.LockDelay, ToldWithin: says.ToldWithin,
	}
}

// readBeside reads what stands beside the entries: the limit of a semaphore, the last run of any other name.
func (l *listing) readBeside(q layout.Keyspace, kv *mvccpb.KeyValue) {
	if q.Kind == holdfast.KindSemaphore {
		limit, _ := layout.LimitIn(kv)
		l.limit = limit.Permits
		return
	}
	l.lastRun, _ = layout.RunIn(kv) // a value that is no run is left out; lastrun.Read reports it
}

// has reports whether one of the last two entries has that key.
func (l listing) has(key string) bool {
	last := l.entries[max(0, len(l.entries)-2):]
	return slices.ContainsFunc(last, func(e Entry) bool { return e.Key == key })
}

// token returns the token of an entry created at rev, given the epoch's key now; 0 if that is not known any more.
func (c *Client) token(ctx context.Context, epoch []*mvccpb.KeyValue, rev int64) (holdfast.Token, error) {
	token, err := layout.Token(epoch, rev)
	if errors.Is(err, layout.ErrEpochMoved) {
		resp, err := c.read(ctx, clientv3.OpGet(names.EpochKey(c.namespace), clientv3.WithRev(rev)))
		if errors.Is(err, rpctypes.ErrCompacted) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		token, _ = layout.Token(resp.Range(0).Kvs, rev)
	}
	return token, nil // 0: whatever stands there, it is not an epoch; acquisitions say so
}

// shownTTLs bounds the requests for TTLs of one Show, parallelTTLs those that are in flight.
const (
	shownTTLs    = 100
	parallelTTLs = 16
)

// timesToLive asks for the TTL of each entry's lease.
func (c *Client) timesToLive(ctx context.Context, entries []Entry) error {
	leases := make(chan clientv3.LeaseID)
	ttls := make(map[clientv3.LeaseID]time.Duration)
	for _, e := range entries {
		ttls[e.Lease] = 0
	}
	ids := slices.Collect(maps.Keys(ttls))
	var mu sync.Mutex // protects ttls and failed
	var failed []error
	var asking sync.WaitGroup
	for range min(parallelTTLs, len(ids)) {
		asking.Go(func() {
			for id := range leases {
				ttl, err := c.timeToLive(ctx, id)
				mu.Lock()
				ttls[id] = ttl
				failed = append(failed, err)
				mu.Unlock()
			}
		})
	}
	for _, id := range ids {
		if id != clientv3.NoLease && ctx.Err() == nil {
			leases <- id
		}
	}
	close(leases)
	asking.Wait()
	for i := range entries {
		entries[i].TTL = ttls[entries[i].Lease]
	}
	if ctx.Err() != nil {
		return retry.ContextErr(ctx)
	}
	return errors.Join(failed...)
}

// timeToLive is the time a lease has left, rounded up to seconds, or 0: the lease is gone, or the role may not ask.
// etcd refuses a role that may not read every key on the lease.
func (c *Client) timeToLive(ctx context.Context, id clientv3.LeaseID) (time.Duration, error) {
	resp, err := requests.Ask(ctx, c.sender, requests.Read, func(
		ctx context.Context,
	) (*clientv3.LeaseTimeToLiveResponse, error) {
		return c.client.TimeToLive(ctx, id)
	})
	switch etcderr.Classify(err) {
	case etcderr.OK:
		return time.Duration(min(resp.TTL+1, resp.GrantedTTL)) * time.Second, nil // etcd rounds down; -1: gone
	case etcderr.LeaseGone, etcderr.Unauthorized:
		return 0, nil
	default:
		return 0, err
	}
}
