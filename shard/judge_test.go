package shard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

// data is the prefix of the keys that the owners of shards write.
const data = "data/"

// judge compares what owners of shards see, and what they write, with etcd's history.
type judge struct {
	t     *testing.T
	srv   *etcdfake.Server
	store *memfence.Store // of a resource beside etcd, which compares tokens
	late  sync.WaitGroup  // writes that no function waits for

	mu      sync.Mutex // protects what follows
	all     []*holding
	running map[*holding]bool              // their functions run
	revoked map[clientv3.LeaseID]time.Time // by hand
	writes  map[string]error               // the outcome of each fenced write, by its value
	beside  map[int]holdfast.Token         // that wrote to the resource last, by shard
	counts  map[string]int                 // what the schedule has shown
}

// What a schedule has shown.
const (
	holds        = "holds"
	refused      = "fenced writes that etcd refused"
	refusedThere = "writes that a resource with tokens of its own refused"
	done         = "fenced writes"
	excused      = "times at which two trusted, as documented, because a lease was revoked"
)

// holding is one hold of a shard.
type holding struct {
	*shard.Shard
	of *actor
}

// stubborn is an owner that was paused between its Check and its write: the Check was nil.
type stubborn struct{ *shard.Shard }

func (stubborn) Check() error { return nil }

func newJudge(t *testing.T, srv *etcdfake.Server) *judge {
	return &judge{
		t: t, srv: srv, store: memfence.New(memfence.Options{}), running: make(map[*holding]bool),
		revoked: make(map[clientv3.LeaseID]time.Time), writes: make(map[string]error),
		beside: make(map[int]holdfast.Token), counts: make(map[string]int),
	}
}

func (j *judge) count(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts[what]++
}

// begin records a hold. Two can begin to trust together only at such a moment.
func (j *judge) begin(s *shard.Shard, of *actor) *holding {
	h := &holding{s, of}
	j.mu.Lock()
	j.all = append(j.all, h)
	j.running[h] = true
	j.counts[holds]++
	j.mu.Unlock()
	j.trusted()
	return h
}

func (j *judge) end(h *holding) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.running, h)
}

// trusted returns who trusts to own which shard, of the processes that run. It checks that none does, not even perhaps
// as one that is suspended, beside another.
func (j *judge) trusted() map[int]string {
	now := time.Now()
	j.mu.Lock()
	running := maps.Clone(j.running)
	maps.DeleteFunc(running, func(h *holding, _ bool) bool { return h.of.stopped })
	j.mu.Unlock()
	checks := make(map[*holding]error)
	for h := range running {
		if err := h.Check(); err == nil || errors.Is(err, holdfast.ErrSuspended) {
			checks[h] = err
		}
	}
	if time.Now() != now { // a process was stopped at this moment, and has answered when it went on
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	owners, names := make(map[int]*holding), make(map[int]string)
	for h, err := range checks {
		if other := owners[h.Index()]; other != nil {
			if j.excused(other) || j.excused(h) {
				j.counts[excused]++
			} else {
				j.t.Errorf("shard %d is owned by %s with token %v (%v), and by %s with %v (%v)", h.Index(), h.of.name,
					h.Token(), err, other.of.name, other.Token(), checks[other])
			}
		}
		if owners[h.Index()] = h; err == nil {
			names[h.Index()] = h.of.name
		}
	}
	return names
}

// excused reports whether docs/shards.md does not promise that a was told before the next owner: its lease was revoked
// by hand, when its messages were lost or late. That lasts until the lease would have expired.
func (j *judge) excused(a *holding) bool {
	at, was := j.revoked[a.Lease()]
	return was && time.Since(at) < kit.TTL && (a.of.trouble != "" || a.of.calmSince.After(at))
}

// write makes a fenced write after a while, and one to a resource beside etcd. No function waits for them.
func (j *judge) write(h fencing.Holder, after time.Duration) {
	index := h.(interface{ Index() int }).Index()
	j.late.Go(func() { // joined by history
		time.Sleep(after)
		ctx, cancel := context.WithTimeout(context.Background(), kit.TTL)
		defer cancel()
		j.mu.Lock()
		value := fmt.Sprintf("%v %d", h.Token(), len(j.writes))
		j.writes[value] = holdfast.ErrOutcomeUnknown
		j.mu.Unlock()
		quiet := etcdfence.WriterOptions{Auditor: audit.Func(func(context.Context, audit.Record) {})}
		_, err := etcdfence.NewWriter(h).With(quiet).Put(ctx, fmt.Sprint(data, index), value)
		j.mu.Lock()
		j.writes[value] = err
		j.mu.Unlock()
		switch {
		case err == nil:
			j.count(done)
		case errors.Is(err, fencing.ErrStale):
			j.count(refused)
		}
		claim := fencing.Claim{Name: h.Name(), Token: h.Token()} // sent whatever Check says now
		err = j.store.Do(ctx, h.Name(), claim, func(context.Context) error {
			j.mu.Lock()
			defer j.mu.Unlock()
			if last := j.beside[index]; h.Token() < last {
				j.t.Errorf("shard %d: token %v wrote after %v", index, h.Token(), last)
			}
			j.beside[index] = h.Token()
			return nil
		})
		if errors.Is(err, fencing.ErrStale) {
			j.count(refusedThere)
		}
	})
}

// history judges by all that has happened in etcd: each hold began when its entry was the oldest of its shard; each
// fenced write was made by the oldest entry, and did what its caller was told.
func (j *judge) history() {
	j.late.Wait()
	began := make(map[int64][]*holding)
	for _, h := range j.all {
		began[h.AcquiredRevision()] = append(began[h.AcquiredRevision()], h)
	}
	changes := j.srv.History("")
	standing := make(map[string][]int64) // the create revisions of entries, by their prefix, oldest first
	written := make(map[string]int)
	for i, c := range changes {
		key, value := string(c.Kv.Key), string(c.Kv.Value)
		prefix := key[:strings.LastIndexByte(key, '/')+1]
		switch {
		case prefix == data:
			written[value]++
			token, _, _ := strings.Cut(value, " ")
			if all := standing[entries+strings.TrimPrefix(key, data)+"/@/"]; len(all) == 0 || fmt.Sprint(all[0]) != token {
				j.t.Errorf("revision %d: %s was written with token %s, and the entries of its shard are %v", c.Revision, key,
					token, all)
			}
		case !strings.HasPrefix(key, entries):
		case c.Deleted && c.Prev != nil:
			standing[prefix] = slices.DeleteFunc(standing[prefix], func(rev int64) bool { return rev == c.Prev.CreateRevision })
		case !c.Deleted && c.Prev == nil:
			standing[prefix] = append(standing[prefix], c.Revision)
		}
		if i+1 < len(changes) && changes[i+1].Revision == c.Revision {
			continue
		}
		for _, h := range began[c.Revision] {
			all := standing[h.Key()[:strings.LastIndexByte(h.Key(), '/')+1]]
			if len(all) == 0 || all[0] != h.Token().Revision() {
				j.t.Errorf("%s owned shard %d with token %v from revision %d on, where its entries are %v", h.of.name, h.Index(),
					h.Token(), c.Revision, all)
			}
		}
	}
	for value, err := range j.writes {
		least, most := 0, 1
		switch {
		case err == nil:
			least = 1
		case !errors.Is(err, holdfast.ErrOutcomeUnknown):
			most = 0
		}
		if n := written[value]; n < least || n > most {
			j.t.Errorf("the write of %q was made %d times, and its caller was told: %v", value, n, err)
		}
	}
}
