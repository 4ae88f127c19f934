package queue

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// The read after a put without a reply finds the entries of two queues, or what is left of them.
func TestWhatIsFoundOfAPutWithoutAReply(t *testing.T) {
	for name, c := range map[string]struct {
		deleted string // k and c are the keys of an entry and its claim, 0 and 1 the queues
		again   string // put anew, by another client
		put     bool
		err     error
		known   string // of which queues the create revision is the put's
	}{
		"all":                                  {put: true, known: "01"},
		"nothing":                              {deleted: "k0 c0 k1 c1"},
		"the second entry was deleted":         {deleted: "k1", put: true, err: ErrEntryGone, known: "01"},
		"both entries were deleted":            {deleted: "k0 k1", put: true, err: ErrEntryGone, known: "01"},
		"the claims were deleted":              {deleted: "c0 c1", put: true, known: "01"},
		"nothing of the first":                 {deleted: "k0 c0", put: true, err: ErrEntryGone, known: "1"},
		"nothing of the second":                {deleted: "k1 c1", put: true, err: ErrEntryGone, known: "0"},
		"an entry that another client has put": {deleted: "k1", again: "k1", put: true, err: ErrEntryGone, known: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := start(t, srv)
				callers := Set{p.queue("x"), p.queue("y")}.join(Request{})
				a := newAttempt(callers, p.Host.Lease())
				keys := make(map[string]string)
				var puts []clientv3.Op
				for i, e := range a.entries {
					keys[fmt.Sprint("k", i)], keys[fmt.Sprint("c", i)] = e.Key, e.Claim
					puts = e.puts(puts, e.Key, e.Claim)
				}
				r, err := srv.Client(t).Txn(t.Context()).Then(puts...).Commit()
				if err != nil {
					t.Fatal(err)
				}
				for _, key := range strings.Fields(c.deleted) {
					srv.Delete(keys[key])
				}
				for _, key := range strings.Fields(c.again) {
					srv.Put(keys[key], "")
				}
				_, put, err := a.findPut(t.Context(), 7)
				if put != c.put || !errors.Is(err, c.err) {
					t.Errorf("put %v, %v; want %v, %v", put, err, c.put, c.err)
				}
				known := ""
				for i, e := range a.entries {
					if e.Created == r.Header.Revision {
						known += fmt.Sprint(i)
					}
				}
				if known != c.known || (a.unansweredAt == 7) != put {
					t.Errorf("the revision is known in %q, want %q; unanswered at gate %d", known, c.known, a.unansweredAt)
				}
				giveUp(callers, a)
				srv.Delete(keys["k1"])
			})
		})
	}
}

// The token of the writer cannot be used. The reader of the same attempt has none, and hides nothing.
func TestTokenThatCannotBeUsedEndsTheWholeAttempt(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		attempt := func() ([]*caller, *attempt) {
			callers := p.queue("x").Downgradable().join(Request{})
			return callers, newAttempt(callers, p.Host.Lease())
		}
		callers, a := attempt()
		if err := a.put(t.Context()); err != nil {
			t.Fatal(err)
		}
		srv.Put(names.EpochKey(p.Host.Namespace), "1") // an operator raises the epoch after the put
		if _, _, err := a.findPut(t.Context(), 7); !errors.Is(err, layout.ErrEpochMoved) {
			t.Errorf("found with %v", err)
		}
		giveUp(callers, a)
		time.Sleep(time.Minute) // the sweeper has moved the gate
		srv.Put(names.EpochKey(p.Host.Namespace), "no number")
		callers, a = attempt()
		if err := a.put(t.Context()); err == nil || a.entries[0].stage < created {
			t.Errorf("put with an epoch that is no number: %v", err)
		}
		giveUp(callers, a)
	})
}

// reads makes a reply of what each read has found, at "ID@REVISION", a claim at "c:ID@REVISION". "+n": so many more
// stand.
func reads(at layout.Keyspace, found ...string) (r requests.Reply) {
	r.Header = &pb.ResponseHeader{Revision: 99}
	for _, text := range found {
		of := &pb.RangeResponse{}
		for _, word := range strings.Fields(text) {
			if more, isMore := strings.CutPrefix(word, "+"); isMore {
				var n int64
				_, _ = fmt.Sscan(more, &n)
				of.Count += n
				continue
			}
			id, isClaim := strings.CutPrefix(word, "c:")
			of.Kvs, of.Count = append(of.Kvs, parseKey(at, id, isClaim)), of.Count+1
		}
		r.Responses = append(r.Responses, &pb.ResponseOp{
			Response: &pb.ResponseOp_ResponseRange{ResponseRange: of},
		})
	}
	return r
}

// shorten is the opposite of parseKey.
func shorten(at layout.Keyspace, kv *mvccpb.KeyValue) string {
	if kv == nil {
		return ""
	}
	key, mark := string(kv.Key), ""
	if at.IsClaim(key) {
		key, mark = at.EntryOf(key), "c:"
	}
	return fmt.Sprintf("%s%s@%d", mark, strings.TrimPrefix(key, at.Entries), kv.CreateRevision)
}

func TestWhatThePutReadsOfThoseBefore(t *testing.T) {
	t.Parallel()
	at := layout.At("holdfast", holdfast.KindLock, "theirs")
	x, foreign, unclaimed := scope{At: lockX}, scope{At: at}, scope{At: at, Unclaimed: true}
	for name, c := range map[string]struct {
		s      scope
		found  []string // youngest first
		entry  string
		claims int // without an entry only: then there is something to wait for
		count  int64
	}{
		"nothing":                       {s: x, found: []string{""}},
		"an entry":                      {s: x, found: []string{"c:a@5 a@5"}, entry: "a@5", count: 1},
		"three entries":                 {s: x, found: []string{"a@5 c:a@5 +4"}, entry: "a@5", count: 3},
		"one without a claim, youngest": {s: x, found: []string{"b@6 a@5 +1"}, entry: "b@6", count: 2},
		"a dead claim":                  {s: x, found: []string{"c:a@5"}, claims: 1, count: 1},
		"two dead claims":               {s: x, found: []string{"c:b@6 c:a@5 +2"}, claims: 2, count: 2},
		"nothing foreign":               {s: foreign, found: []string{"", ""}},
		"foreign entries":               {s: foreign, found: []string{"b@6 +1", "c:a@5"}, entry: "b@6", count: 2},
		"a foreign claim":               {s: foreign, found: []string{"", "c:a@5"}, claims: 1},
		// What follows its one read is the epoch.
		"nothing, without the right to claims":  {s: unclaimed, found: []string{"", "e@2"}},
		"an entry, without the right to claims": {s: unclaimed, found: []string{"a@5", "e@2"}, entry: "a@5", count: 1},
	} {
		entry, claims, count := c.s.before(reads(c.s.At, c.found...), 0)
		if got := shorten(c.s.At, entry); got != c.entry || count != c.count || len(claims) != c.claims {
			t.Errorf("%s: entry %q, %d claims, count %d", name, got, len(claims), count)
		}
	}
}

// A put must not cost more in a long queue.
func TestPutReadsOneOrTwoKeysOfAQueue(t *testing.T) {
	for name, c := range map[string]struct {
		queue  func(p *process) *Queue
		prefix string
		limit  int64
	}{
		"a name": {func(p *process) *Queue { return p.queue("x") }, entriesX, 2},
		"a foreign prefix": {func(p *process) *Queue {
			return At(p.Host, holdfast.KindLock, "theirs")
		}, "theirs/", 1},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p, ahead := start(t, srv), kit.Join(t, srv, c.prefix)
				var limits []int64
				p.Link.Plan(func(call etcdfake.Call) (f etcdfake.Fate) {
					if kit.KindOf(call) != "enqueue" {
						return f
					}
					for _, op := range call.Request.(*pb.TxnRequest).Success {
						if r := op.GetRequestRange(); r != nil && r.RangeEnd != nil {
							limits = append(limits, r.Limit)
						}
					}
					return f
				})
				done := acquireLater(kit.Within(t, time.Minute), c.queue(p))
				kit.Queued(t, srv, c.prefix, 2)
				ahead.Release()
				mustHandOff(t, <-done)
				if len(limits) == 0 {
					t.Fatal("it has read nothing: this tests nothing")
				}
				for _, limit := range limits {
					if limit != c.limit {
						t.Errorf("the limits of its reads are %d, want %d", limits, c.limit)
					}
				}
			})
		})
	}
}
