//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/tests/internal/family"
)

// upstreamName is a lock that each worker acquires with etcd's own client, beside its other ones.
const upstreamName = "upstream"

// A stretch is a time in which a process believed that it held the lock of etcd's own client: from the return of Lock
// to the last moment at which the session's Done was not closed.
type stretch struct{ From, To time.Duration }

// lockUpstream acquires the lock again and again, and reports when it believed to hold it.
func (w *worker) lockUpstream() {
	r := rand.New(rand.NewPCG(w.Seed, 1<<32))
	for w.stop.Err() == nil {
		sess, err := concurrency.NewSession(w.cli, concurrency.WithTTL(int(w.TTL.Seconds())), concurrency.WithContext(w.stop))
		if err == nil {
			w.lockOn(sess, r)
			_ = sess.Close() // at the end it is left to its TTL
		}
		pauseFor(w.stop, family.UpTo(r, time.Second))
	}
}

// lockOn does so until the session is over.
func (w *worker) lockOn(sess *concurrency.Session, r *rand.Rand) {
	mutex := concurrency.NewMutex(sess, upstreamName)
	for w.stop.Err() == nil {
		ctx, cancel := context.WithTimeout(w.stop, 15*time.Second)
		err := mutex.Lock(ctx)
		cancel()
		if err == nil {
			s := stretch{From: sinceBoot()}
			s.To = s.From
			for end := s.From + family.UpTo(r, 2*time.Second); w.stop.Err() == nil && (sinceBoot() < end || w.keep.Load()); {
				now := sinceBoot()
				select {
				case <-sess.Done():
					w.say(event{What: heldUpstream, Who: w.ID, Stretch: s})
					return
				default:
					s.To = now
				}
				pauseFor(w.stop, 2*time.Millisecond)
			}
			w.say(event{What: heldUpstream, Who: w.ID, Stretch: s})
			ctx, cancel := context.WithTimeout(w.stop, 3*time.Second)
			err = mutex.Unlock(ctx)
			cancel()
		}
		select {
		case <-sess.Done():
			return
		default:
		}
		if err != nil { // perhaps it left a key
			return
		}
		pauseFor(w.stop, family.UpTo(r, time.Second))
	}
}

// countUpstream counts how often two processes believed to hold the lock of etcd's own client. It is called with mu
// held.
func (f *round) countUpstream() {
	var all []event
	for _, ev := range f.events {
		if ev.What == heldUpstream {
			all = append(all, ev)
		}
	}
	f.stats.Counts[upstreamHeld] += len(all)
	slices.SortFunc(all, func(a, b event) int { return int(a.Stretch.From - b.Stretch.From) })
	for i, a := range all {
		for _, b := range all[i+1:] {
			if both := min(a.Stretch.To, b.Stretch.To) - b.Stretch.From; both > 0 {
				f.stats.Counts[upstreamBoth]++
				f.stats.Worst[upstreamBothAtMost] = max(f.stats.Worst[upstreamBothAtMost], both)
			}
		}
	}
}

// What the statistics have of it.
const (
	upstreamHeld       = "acquisitions of a lock of etcd's own client"
	upstreamBoth       = "two held a lock of etcd's own client"
	upstreamBothAtMost = upstreamBoth + ", at most"
)

// An upstream is what the same faults did to etcd's own lock.
type upstream struct {
	Acquisitions int
	TwoHeld      int // two processes believed to hold it
	Longest      float64
}

func (u upstream) String() string {
	return fmt.Sprintf("etcd's own lock beside: %d acquisitions; two held %d times, for %.3f s at most", u.Acquisitions,
		u.TwoHeld, u.Longest)
}
