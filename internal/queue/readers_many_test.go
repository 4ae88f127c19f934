package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/bubble"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// A writer watches the youngest reader ahead, so it is woken most often if the youngest goes first.
func TestWriterBehindAThousandReadersIsWokenOnceForEachAtMost(t *testing.T) {
	n := 1000
	if bubble.Race {
		n = 300 // CI tests all of them without the race detector
	}
	const pause = 8 * kit.OneWay
	rechecks := int(time.Duration(n)*pause/recheckAfter) + 1 // of a watch that is silent
	random := rand.New(rand.NewPCG(1, 2)).Perm(n)
	for name, c := range map[string]struct {
		next func(i int) int
		most int
	}{
		"oldest first":   {func(i int) int { return i }, 1},
		"youngest first": {func(i int) int { return n - 1 - i }, n},
		"random":         {func(i int) int { return random[i] }, 20},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var readers []*kit.Peer
				for range n {
					readers = append(readers, kit.JoinReader(t, srv, entriesX))
				}
				p, behind := start(t, srv), start(t, srv)
				writer := acquireLater(kit.Within(t, time.Hour), p.queue("x"))
				kit.Queued(t, srv, entriesX, n+1)
				last := acquireLater(kit.Within(t, time.Hour), behind.readers("x"))
				kit.Queued(t, srv, entriesX, n+2)
				time.Sleep(time.Second)
				p.Plan(nil)
				behind.Plan(nil)
				for i := range n {
					readers[c.next(i)].Release()
					time.Sleep(pause)
				}
				w := granted(t, srv, writer)
				// Each wake-up but the last is followed by a watch of the next reader ahead.
				if sent := p.Counts(); sent["watch"] >= c.most || sent["read"] > 2*c.most+rechecks {
					t.Errorf("the writer sent %v, want to be woken %d times at most", sent, c.most)
				}
				if sent := behind.Counts(); sent["watch"] != 0 || sent["read"] > rechecks {
					t.Errorf("the reader behind the writer sent %v: it was woken by readers", sent)
				}
				mustRelease(t, w.h)
				mustRelease(t, (<-last).h)
			})
		})
	}
}

// Counted is who gets in, not when.
func TestStreamOfReadersDoesNotPassAWriter(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		sessions := []*process{start(t, srv), start(t, srv), start(t, srv)}
		const before, after = 30, 200
		got := make(chan result, before+after)
		read := func(i int) {
			go func() {
				h, err := sessions[i%len(sessions)].readers("x").Acquire(ctx, Request{})
				got <- result{h, err, time.Now()}
				time.Sleep(50 * kit.OneWay)
				if err == nil {
					err = h.Release(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			}()
			time.Sleep(kit.OneWay)
		}
		for i := range before {
			read(i)
		}
		writer := acquireLater(ctx, sessions[0].queue("x"))
		time.Sleep(2 * kit.OneWay)
		for i := range after {
			read(i)
		}
		w := granted(t, srv, writer)
		put := w.h.Token().Revision()
		if n := len(got); n > before+2 {
			t.Errorf("%d readers got in before the writer, of which %d came before it", n, before)
		}
		mustRelease(t, w.h)
		for range before + after {
			r := <-got
			if r.err != nil {
				t.Fatal(r.err)
			}
			if r.at.Before(w.at) && r.h.entry.rev > put {
				t.Errorf("a reader that queued at %d passed the writer that queued at %d", r.h.entry.rev, put)
			}
		}
		time.Sleep(time.Minute)
		kit.NothingStands(t, srv)
	})
}

// Each waits for those that are ahead of it, and the readers that follow one another hold together.
func TestLocksOfEtcdsOwnClientsBetweenReaders(t *testing.T) {
	const prefix = "theirs/x/"
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p, other := start(t, srv), start(t, srv)
		ours := func(p *process) *Queue { return p.queueAt("theirs/x").Readers() }
		first, second := mustAcquire(t, ours(p)), mustAcquire(t, ours(other))
		theirs := kit.JoinAs(t, srv, prefix, func(id clientv3.LeaseID) string { return fmt.Sprintf("%x", int64(id)) })
		third := acquireLater(kit.Within(t, time.Minute), ours(p))
		fourth := acquireLater(kit.Within(t, time.Minute), ours(other))
		kit.Queued(t, srv, prefix, 5)
		mustRelease(t, first)
		mustRelease(t, second)
		staysQueued(t, third, "a reader behind etcd's own lock")
		staysQueued(t, fourth, "a reader behind etcd's own lock")
		theirs.Release()
		a, b := <-third, <-fourth
		if a.err != nil || b.err != nil {
			t.Fatal(a.err, b.err)
		}
		mustRelease(t, a.h)
		mustRelease(t, b.h)
		if kvs := srv.Keys(prefix); len(kvs) != 0 {
			t.Errorf("left: %v", kit.KeysOf(kvs))
		}
	})
}

// A writer judges the readers that stood ahead by their session keys. If there were more than it reads, one that it
// has not read may have been revoked.
func TestWriterKnowsThatMoreReadersStoodAheadThanItJudges(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := start(t, srv).queue("x")
		for n := 1; n <= maxJudged+2; n++ {
			kit.JoinReader(t, srv, q.at.Entries)
			if n < maxJudged {
				continue
			}
			kvs := srv.Keys(q.at.Entries)
			created := int64(0)
			for _, kv := range kvs {
				created = max(created, kv.CreateRevision)
			}
			resp, err := q.get(t.Context(), q.othersAhead(created+1))
			if err != nil {
				t.Fatal(err)
			}
			if len(resp.Kvs) != min(n, maxJudged+1) {
				t.Errorf("of %d readers ahead %d were read, want one more than %d at most", n, len(resp.Kvs), maxJudged)
			}
			var others othersAhead
			others.add(q, resp.Kvs, false)
			if unknown := n > maxJudged; others.unknown != unknown || !unknown && len(others.sessions) != n {
				t.Errorf("of %d readers ahead %d sessions are known, unknown %v", n, len(others.sessions), others.unknown)
			}
		}
	})
}
