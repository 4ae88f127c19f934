package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/requests"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// Of a semaphore permits and turns are ahead. The oldest that holds is the holder: a permit, or a turn that was marked.
func TestPlaceInASemaphoreFindsWhoIsAhead(t *testing.T) {
	for name, c := range map[string]struct {
		keys   string // in the order of their creation: permits "p", turns that wait "t", and that were marked "m"
		holder int    // which; -1: none
		behind int    // of the first so many; 0: of all
		count  int64
	}{
		"nothing":                             {"", -1, 0, 0},
		"permits":                             {"p p", 0, 0, 2},
		"a permit, and turns that wait":       {"p t t", 0, 0, 3},
		"a turn that waits holds nothing":     {"t", -1, 0, 1},
		"an old turn that waits":              {"t p", 1, 0, 2},
		"a turn that holds":                   {"m", 0, 0, 1},
		"a turn that has held for longer":     {"m p t", 0, 0, 3},
		"a turn that has held for less":       {"p m t", 0, 0, 3},
		"behind a permit and a turn":          {"p t t p", 0, 2, 2},
		"behind a turn that holds":            {"m t", 0, 1, 1},
		"behind nothing":                      {"p", 0, 0, 1},
		"the first turn, while a younger has": {"t m", -1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				cli := srv.Client(t)
				var keys []string
				var created []int64
				for i, kind := range strings.Fields(c.keys) {
					key := semaphoreX.PermitKey(1, fmt.Sprintf("1f-%c", 'A'+i))
					if kind != "p" {
						key = semaphoreX.TurnKey(key)
					}
					keys, created = append(keys, key), append(created, putTogether(t, cli, key, []string{""}))
					if kind == "m" {
						putTogether(t, cli, key, []string{""})
					}
				}
				s, rev := scope{At: semaphoreX}, int64(0)
				if c.behind > 0 {
					rev = created[c.behind-1] + 1
				}
				before := clientv3.OpGet("another") // a read before them
				r, err := cli.Txn(t.Context()).Then(append([]clientv3.Op{before}, s.placeReads(rev)...)...).Commit()
				if err != nil {
					t.Fatal(err)
				}
				holder, count := s.aheadIn(requests.Reply{Header: r.Header, Responses: r.Responses}, 1, rev)
				held, want := "", ""
				if holder != nil {
					held = string(holder.Key)
				}
				if c.holder >= 0 {
					want = keys[c.holder]
				}
				if held != want || count != c.count {
					t.Errorf("%q holds, and %d are ahead; want %q, %d", held, count, want, c.count)
				}
			})
		})
	}
}

// The one that has the line's entry is ahead of the others in the line. It is not ahead of itself.
func TestPlaceOfTheHeadOfALine(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := start(t, srv).queue("x")
		g := mustAcquire(t, q)
		srv.Put(entriesX+"theirs", "") // right behind it
		if own := srv.Keys(entriesX); own[0].CreateRevision+1 != own[1].CreateRevision {
			t.Fatalf("%v: this tests nothing", own)
		}
		next := newCaller(q, Request{})
		q.shared.lines.join(next)
		if p := g.caller.place(t.Context()); p.Ahead != 0 || p.Holder.Key != "" {
			t.Errorf("of the holder: %+v", p)
		}
		if p := next.place(t.Context()); p.Ahead != 1 || p.Holder.Key != g.Key {
			t.Errorf("of the next: %+v", p)
		}
		next.cancel()
		srv.Delete(entriesX + "theirs")
		mustHandOff(t, g)
		if p := g.caller.place(t.Context()); p.Known() {
			t.Errorf("of the last one, which has left: %+v", p)
		}
	})
}

// A call that does not wait reads no more keys of a long queue than it takes to say how long it is.
func TestTryAcquireReadsFewKeys(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, ahead := start(t, srv), kit.Join(t, srv, entriesX)
		ranges := 0
		p.Link.Plan(func(c etcdfake.Call) (f etcdfake.Fate) {
			if txn, ok := c.Request.(*pb.TxnRequest); ok && kit.KindOf(c) == "read" {
				for _, op := range txn.Success {
					if r := op.GetRequestRange(); r.GetRangeEnd() != nil {
						ranges++
						if r.Limit == 0 || r.Limit > maxCounted {
							t.Errorf("it reads up to %d keys", r.Limit)
						}
					}
				}
			}
			return f
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Set{p.queue("x")}.TryAcquire(ctx, Request{})
		if err == nil || ranges == 0 {
			t.Errorf("%v; it has read %d ranges", err, ranges)
		}
		ahead.Release()
	})
}
