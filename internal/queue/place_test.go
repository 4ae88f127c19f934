package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/view"
)

// Those in a line have each other ahead, and what their head waits for. At most MaxAhead are counted.
func TestPlaceCountsTheLineUpToMaxAhead(t *testing.T) {
	const peers = 3
	for name, holds := range map[string]bool{"its head holds": true, "its head waits": false} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				q := start(t, srv).queue("x")
				ahead := 0
				if !holds {
					for ahead < peers {
						ahead++
						kit.Join(t, srv, entriesX)
					}
				}
				ctx, giveUp := context.WithCancel(t.Context())
				head := acquireLater(ctx, q)
				kit.Queued(t, srv, entriesX, ahead+1)
				var held *Grant
				if holds {
					held = <-head
				}
				var line []*caller
				for range view.MaxAhead + 2 {
					tk := newCaller(q, Request{})
					q.shared.lines.join(tk)
					line = append(line, tk)
				}
				bound := view.MaxAhead - ahead - 1
				for _, i := range []int{0, 1, bound - 1, bound, view.MaxAhead, view.MaxAhead + 1} {
					p, want := line[i].place(t.Context()), min(ahead+1+i, view.MaxAhead)
					if p.Ahead != want || p.Holder.Key == "" || holds && p.Holder.Key != held.Key {
						t.Errorf("number %d in the line: %+v, want %d ahead", i, p, want)
					}
				}
				for i := len(line) - 1; i >= 0; i-- {
					p, err := Without(Set{q}.checkFree(t.Context()))
					if want := min(1+i+1, view.MaxAhead); !errors.Is(err, ErrOwnSession) || p.Ahead != want {
						t.Errorf("a caller who does not join, behind %d in the line: %v, %+v, want %d ahead", i+1, err, p, want)
					}
					line[i].cancel()
				}
				if holds {
					mustHandOff(t, held)
				}
				giveUp()
			})
		})
	}
}

// Behind a head of which etcd does not answer, the line alone is known. Without a line nothing is.
func TestPlaceInALineIsToldThoughEtcdIsAway(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		q := p.queue("x")
		head, behind := newCaller(q, Request{}), newCaller(q, Request{})
		q.shared.lines.join(head)
		q.shared.lines.join(behind)
		p.Link.BlackHole()
		patience, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if p := behind.place(patience); p.Ahead != 1 || !p.Seen.Equal(time.Now()) {
			t.Errorf("behind a head of which nothing is known: %+v", p)
		}
		if p := head.place(patience); p.Known() {
			t.Errorf("of the head: %+v", p)
		}
		p.Heal()
		head.inSet = true
		if p := head.place(t.Context()); p.Name != "x" {
			t.Errorf("of a set: %+v", p)
		}
		head.next()
		behind.next()
	})
}
