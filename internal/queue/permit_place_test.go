package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/permits"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// permitAt is a permit as a read sees it.
func permitAt(rev int64, weight int, mark int64) *mvccpb.KeyValue {
	kv := &mvccpb.KeyValue{
		Key:            fmt.Appendf(nil, "%s%d-%x-AAAAAAAAAAAAAAAA", permitsX, weight, rev),
		CreateRevision: rev, ModRevision: rev,
	}
	if mark != 0 {
		kv.Value = []byte(layout.Value{Queued: time.Now(), Mark: mark}.Encode())
	}
	return kv
}

// entryOf returns an entry of an attempt that has put nothing yet.
func entryOf(q *Queue) *entry {
	a := &attempt{lease: q.host.Lease()}
	e := a.newEntry(q)
	a.entries, e.ticket = []*entry{e}, newTicket(q, Request{})
	return e
}

// Where a permit is put decides what it waits for, and what it knows of those that went before.
func TestPlaceOfAPermit(t *testing.T) {
	const rev, weight = 50, 2
	old := []*mvccpb.KeyValue{permitAt(10, 2, 0), permitAt(20, 2, 0), permitAt(30, 2, 0)}
	limit := func(limit, high int) layout.Limit { return layout.Limit{Permits: limit, High: high, Mod: 5} }
	lowered := func(mod int64) layout.Limit { return layout.Limit{Permits: 4, High: 6, Mod: mod} }
	for name, c := range map[string]struct {
		ahead    []*mvccpb.KeyValue
		limit    layout.Limit
		delay    bool
		far      bool
		holds    bool
		base     int64
		due      int64
		youngest *mvccpb.KeyValue
	}{
		"nothing ahead":               {limit: limit(2, 2), holds: true, base: 50},
		"room beside others":          {ahead: old[:2], limit: limit(6, 6), holds: true, base: 50},
		"the first waiter":            {ahead: old[:2], limit: limit(4, 4), base: 50},
		"the first, queued again":     {ahead: old[:2], limit: limit(4, 4), delay: true, due: 50},
		"behind one that waits":       {ahead: old, limit: limit(4, 4), far: true},
		"that may hold by the past":   {ahead: old, limit: lowered(31), base: 50},
		"that was put since":          {ahead: old, limit: lowered(29), far: true},
		"behind one that has a mark":  {ahead: old, limit: limit(4, 4), base: 50, youngest: permitAt(40, 2, 9)},
		"behind one that waits there": {ahead: old, limit: limit(4, 4), far: true, youngest: permitAt(40, 2, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				e := entryOf(start(t, srv).permits(4, weight))
				e.rev = rev
				seen := permits.Seen{Ahead: c.ahead, All: true, Limit: c.limit, Youngest: c.youngest}
				if seen.Youngest == nil && len(c.ahead) > 0 {
					seen.Youngest = c.ahead[len(c.ahead)-1]
				}
				p := e.wait.permit
				p.requeued = c.delay
				p.place(seen, rev)
				ahead := e.wait.ahead
				if e.stage != placed || (ahead == nil) != c.holds || !c.holds && ahead != seen.Youngest || p.Far != c.far {
					t.Fatalf("stage %v behind %v, far %v", e.stage, ahead, p.Far)
				}
				if p.Weight != weight || p.Limit != c.limit || p.Served != c.base || p.Due != c.due {
					t.Errorf("%+v, want limit %v, base %d, due %d", p, c.limit, c.base, c.due)
				}
				if c.far {
					return
				}
				if a := p.Account; !a.All || a.Heard != rev || a.Sum != 2*len(c.ahead) || len(a.Stand) != len(c.ahead) {
					t.Errorf("%+v, want to know of %d ahead at %d", p, len(c.ahead), rev)
				}
				if got := (p.delay != delay{}); got != c.delay {
					t.Errorf("the lock delay has begun: %v", got)
				}
			})
		})
	}
}

// Five hold, by a limit that this session has not heard of, so it reads three of them.
func TestPermitThatHasNotReadAllAheadReadsThemAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var peers []*kit.Peer
		for range 7 {
			peers = append(peers, kit.JoinPermit(t, srv, permitsX, 1))
		}
		kit.SetLimit(t, srv, 2, 5)
		at := func(p *kit.Peer) *mvccpb.KeyValue { return srv.Keys(p.Key)[0] }
		gone, own := at(peers[5]), at(peers[6])
		e := entryOf(start(t, srv).permits(2, 1))
		e.key, e.rev, e.wait.ahead, e.wait.permit.Far = string(own.Key), own.CreateRevision, gone, true
		e.wait.permit.Created = e.rev
		peers[5].Release()
		if err := e.wait.permit.lookForMark(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p := e.wait.permit; p.Far || p.All || len(p.Stand) != 3 {
			t.Fatalf("far %v, knows all %v of %d", p.Far, p.All, len(p.Stand))
		}
		peers[4].Revoke() // not one of those that were read
		if err := e.wait.permit.lookForRoom(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := e.wait.permit.Account; !a.All || a.Sum != 4 || len(a.Gone) != 1 {
			t.Errorf("%d permits ahead, %d gone", a.Sum, len(a.Gone))
		}
	})
}

// The entry ahead of a far one has gone without a mark. What stood ahead then decides what the far one waits for, and
// from which revision on it knows of all that goes.
func TestPlaceOfAPermitWhoseEntryAheadHasGone(t *testing.T) {
	marked := layout.Value{Queued: time.Now(), Mark: 1 << 40}.Encode()
	for name, c := range map[string]struct {
		ahead, more int    // permits ahead of the one that goes, and those that go with it, unheard
		value       string // of the youngest ahead
		heard       bool   // of the deletion
		compacted   bool
		far         bool
		delay       bool
	}{
		"one waits":                      {ahead: 3, heard: true, far: true},
		"one waits, not heard":           {ahead: 3, far: true},
		"one has a mark":                 {ahead: 2, value: marked, heard: true},
		"all hold":                       {ahead: 2, heard: true, delay: true},
		"all hold, not heard":            {ahead: 2, delay: true},
		"none is left":                   {heard: true, delay: true},
		"none is left, not heard":        {delay: true},
		"one waited then":                {ahead: 2, more: 1, heard: true, far: true},
		"one waited then, not heard":     {ahead: 2, more: 1, delay: true},
		"one waited then, and compacted": {ahead: 2, more: 1, heard: true, compacted: true, delay: true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				kit.SetLimit(t, srv, 2, 2)
				q := start(t, srv).permits(2, 1)
				var peers []*kit.Peer
				for range c.ahead + c.more + 2 {
					peers = append(peers, kit.JoinPermit(t, srv, permitsX, 1))
				}
				if c.value != "" {
					srv.Put(peers[c.ahead-1].Key, c.value)
				}
				at := func(p *kit.Peer) *mvccpb.KeyValue { return srv.Keys(p.Key)[0] }
				gone, own := at(peers[c.ahead+c.more]), at(peers[c.ahead+c.more+1])
				e := entryOf(q)
				e.key, e.rev, e.wait.ahead, e.wait.permit.Far = string(own.Key), own.CreateRevision, gone, true
				e.wait.permit.Created = e.rev
				p := e.wait.permit
				srv.Delete(string(gone.Key))
				history := srv.History(string(gone.Key))
				from := history[len(history)-1].Revision
				for _, peer := range peers[c.ahead : c.ahead+c.more] {
					peer.Release()
				}
				srv.Put("other", "")
				if c.compacted {
					srv.Compact()
				}
				var err error
				if c.heard {
					err = p.judge(t.Context(), from)
				} else {
					err = p.lookForMark(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				if !c.heard || c.compacted {
					from = e.of.revision
				}
				if p.Far != c.far || (p.delay != delay{}) != c.delay || p.Limit.Permits != 2 {
					t.Fatalf("%+v, far %v, delay until %v", p, p.Far, p.delay.until)
				}
				if a := p.Account; c.delay && (a.Served != 0 || a.Due != from || a.Heard != from || !a.All || a.Sum != c.ahead) {
					t.Errorf("%+v, want to know of %d ahead, and to wait for what went before %d", p, c.ahead, from)
				}
				if c.value != "" && (p.Served != e.rev || p.All) {
					t.Errorf("%+v, want to judge all that has gone since %d, whatever the mark says", p, e.rev)
				}
			})
		})
	}
}

// A read of the past sees what stood ahead then, whatever was put or deleted since.
func TestPermitsAreReadAsTheyStood(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		kit.SetLimit(t, srv, 3, 3)
		one, two, three := kit.JoinPermit(t, srv, permitsX, 1), kit.JoinPermit(t, srv, permitsX, 1),
			kit.JoinPermit(t, srv, permitsX, 1)
		at := srv.Keys(three.Key)[0].CreateRevision
		two.Release()
		three.Release()
		four := kit.JoinPermit(t, srv, permitsX, 1)
		q := p.permits(3, 1)
		look := func(maxCreate, at int64) (keys []string, youngest string) {
			seen, err := q.limit.See(t.Context(), maxCreate, at,
				func(ctx context.Context, ask txns.Ops) (txns.Reply, error) {
					return txns.Read(ctx, q.host.Sender(), ask...)
				})
			if err != nil {
				t.Fatal(err)
			}
			if seen.Youngest != nil {
				youngest = string(seen.Youngest.Key)
			}
			return kit.KeysOf(seen.Ahead), youngest
		}
		expect := func(maxCreate, at int64, want ...*kit.Peer) {
			t.Helper()
			keys, youngest := look(maxCreate, at)
			last := ""
			for i, peer := range want {
				if last = peer.Key; i >= len(keys) || keys[i] != last {
					t.Errorf("up to %d at %d: %v, want %s at %d", maxCreate, at, keys, last, i)
				}
			}
			if len(keys) != len(want) || youngest != last {
				t.Errorf("up to %d at %d: %v, the youngest is %s, want %d and %s", maxCreate, at, keys, youngest, len(want), last)
			}
		}
		expect(0, 0, one, four)
		expect(at, at, one, two, three)
		expect(at-1, at, one, two)
		expect(at, 0, one)
	})
}

func TestLimitThatCannotBeReadOrPutIsAnError(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q, sem := p.permits(3, 1), NewSemaphore(p.Host, "x", 3)
		denied := func(put bool) func(ops []clientv3.Op) error {
			return func(ops []clientv3.Op) error {
				if ops[0].IsPut() == put {
					return rpctypes.ErrPermissionDenied
				}
				return nil
			}
		}
		p.KV.Refuse(denied(true))
		if err := sem.Resize(t.Context(), 5); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("Resize without the right to write: %v", err)
		}
		p.KV.Refuse(nil)
		kit.SetLimit(t, srv, 3, 3)
		if err := sem.Resize(t.Context(), 5); err != nil {
			t.Errorf("Resize: %v", err)
		}
		e := entryOf(q)
		e.key = kit.JoinPermit(t, srv, permitsX, 1).Key
		e.rev = srv.Keys(e.key)[0].CreateRevision
		srv.Put(kit.LimitX, "many")
		if err := e.wait.permit.judge(t.Context(), 0); err == nil || !strings.Contains(err.Error(), kit.LimitX) {
			t.Errorf("judged by a limit that is no number: %v", err)
		}
		mustClose(t, p)
		if n, err := sem.Limit(t.Context()); n != 0 || !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Limit of a closed session: %d, %v", n, err)
		}
	})
}
