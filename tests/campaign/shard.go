//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/shard"
	"github.com/holdfast-go/holdfast/tests/internal/family"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

const (
	// shards is how many the workers share.
	shards = 8

	// sharedWithin is for how long the members must not have changed when all shards are owned, evenly.
	sharedWithin = settle + 5*time.Second

	settle = time.Second // Options.Settle of all members

	shared = "from the last fault or change of members until all shards were owned, evenly, at most"
)

// formerOwner is an owner of a shard that was paused between its Check and its write: the Check was nil.
type formerOwner struct{ *shard.Shard }

func (formerOwner) Check() error { return nil }

// ownShards owns its part of the shards until the worker is to stop. Its successor has its name.
func (w *worker) ownShards() {
	var calls atomic.Uint64
	var late sync.WaitGroup
	defer late.Wait()
	all := shard.New(w.sess, w.Shards, shards).With(shard.Options{
		Member: processOf(w.ID), OnError: func(int, error) {}, OnOverrun: w.overrun, Settle: settle,
	})
	own := func(ctx context.Context, s *shard.Shard) error {
		call := calls.Add(1)
		r := rand.New(rand.NewPCG(w.Seed, ^call))
		d := time.Hour
		if !w.calm.Load() && r.IntN(4) == 0 {
			d = family.UpTo(r, 5*time.Second)
		}
		began := event{What: held, Kind: shardKind, Who: fmt.Sprintf("%s shard %d call %d", w.ID, s.Index(), call)}
		part := oracle.ShardPart(w.Shards, s.Index())
		end := w.hold(began, s, []oracle.Part{part}, d, ctx.Done(), r)
		w.say(end)
		late.Go(func() { w.writeLate(s, began.Who) })
		fn := function{worker: w, part: part}
		if end.Hold.Told != 0 && !w.calm.Load() {
			fn.overstay(r)
		}
		fn.returns(s)
		return nil
	}
	err := all.Run(w.stop, own)
	for refusedForNow(err) && w.stop.Err() == nil { // Run ends when it may not read the members, or cannot join them
		pauseFor(w.stop, 200*time.Millisecond)
		err = all.Run(w.stop, own)
	}
	if w.stop.Err() == nil {
		w.say(event{What: cannot, Who: w.ID, Err: fmt.Sprintf("own shards: %v", err)})
	}
}

// writeLate writes behind a fence when a shard is not owned any more. The oracle judges what etcd has not refused.
func (w *worker) writeLate(s *shard.Shard, who string) {
	<-s.Done()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	former := fencedHolder{w, formerOwner{s}, oracle.ShardPart(w.Shards, s.Index()), who}
	if err := former.put(ctx, 0); errors.Is(err, fencing.ErrStale) {
		w.say(event{What: refused, Who: who})
	}
}

// own notes what a process says about a shard. It is called with mu held.
func (f *round) own(id string, ev event) {
	for index := range shards {
		switch {
		case ev.Hold.Parts[0] != oracle.ShardPart(f.shards, index):
		case ev.What == held:
			f.owning[index] = id
		case f.owning[index] == id:
			delete(f.owning, index)
		}
	}
}

// awaitShards waits until each shard is owned by one of the processes that are left, evenly: by what is in etcd, and by
// what the processes say. It must be so when the members have not changed for five seconds, if the machine kept up.
func (f *round) awaitShards(ctx context.Context) error {
	cli, err := f.cluster.NewClient()
	if err != nil {
		return err
	}
	defer cli.Close()
	owners := shard.NewReader(cli, f.shards)
	changed, was := sinceBoot(), ""
	since := changed + afterFault
	var late error
	err = eventually(ctx, "all shards are owned, evenly", func() bool {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		sent := sinceBoot()
		members, err := cli.Get(ctx, oracle.MembersOf("shard/"+f.shards), clientv3.WithPrefix())
		now, again := owners.Owners(ctx)
		if errors.Join(err, again) != nil {
			return false
		}
		present := ""
		for _, kv := range members.Kvs {
			present += fmt.Sprintln(string(kv.Key), kv.ModRevision)
		}
		if present != was {
			changed, was = sinceBoot(), present
			since = max(since, changed)
		}
		state, even := f.sharing(now)
		switch {
		case even:
			f.stats.Worst[shared] = max(f.stats.Worst[shared], sinceBoot()-changed)
			return true
		case sent-since > sharedWithin && !f.history.busySince(since):
			late = fmt.Errorf("%v after the faults and the last change of the members:\n%s\nmembers:\n%s", sent-since, state,
				present)
			return true
		}
		return false
	})
	return errors.Join(late, err)
}

// sharing returns who owns which shard, and whether each one is owned, evenly, by those that are left.
func (f *round) sharing(now shard.Owners) (state string, even bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	loads, ids := make(map[string]int), make(map[string]string) // by member
	for _, w := range f.workers {
		loads[processOf(w.id)], ids[processOf(w.id)] = 0, w.id
	}
	owned := 0
	var all strings.Builder
	for index := range shards {
		inEtcd, says := now.Owner(index).Member, f.owning[index]
		fmt.Fprintf(&all, "shard %d: by etcd %q, and owned by %q\n", index, inEtcd, says)
		if says != "" && says == ids[inEtcd] {
			loads[inEtcd]++
			owned++
		}
	}
	of := slices.Collect(maps.Values(loads))
	return all.String(), owned == shards && slices.Max(of)-slices.Min(of) <= 1
}

// busySince reports whether the machine has been too busy for a judgment since a time.
func (h *history) busySince(from time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(slices.Concat(h.starved, h.slow), func(f oracle.Fault) bool { return f.To > from })
}
