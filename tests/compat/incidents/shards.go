package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

// floor is where shards run: it knows on how many nodes each does.
type floor struct {
	mu      sync.Mutex
	nodes   map[int]int // by shard
	started int
	twice   int // how often a shard ran on two
}

func (f *floor) start(shard int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started++
	if f.nodes[shard]++; f.nodes[shard] > 1 {
		f.twice++
	}
}

func (f *floor) stop(shard int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[shard]--
}

// running returns how many shards run.
func (f *floor) running() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, nodes := range f.nodes {
		if nodes > 0 {
			n++
		}
	}
	return n
}

// A model of a coordinator that gives shards to nodes, in a rolling restart. When a node says that it has stopped a
// shard, the coordinator takes that from its owner, whichever node that is; and nodes say so once more, to be safe.
func allocatedTwice(ctx context.Context, l *lab) (outcome, error) {
	const key = "shards/0"
	f := &floor{nodes: make(map[int]int)}
	allocate := func(to string) error {
		free := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
		resp, err := l.cli.Txn(ctx).If(free).Then(clientv3.OpPut(key, to)).Commit()
		if err == nil && resp.Succeeded {
			f.start(0)
		}
		return err
	}
	saysStopped := func() error { _, err := l.cli.Delete(ctx, key); return err }
	if err := allocate("first"); err != nil {
		return outcome{}, err
	}
	f.stop(0) // the first node restarts
	for _, next := range []string{"second", "third"} {
		if err := saysStopped(); err != nil { // the first node, in time and once more
			return outcome{}, err
		}
		if err := allocate(next); err != nil {
			return outcome{}, err
		}
	}
	if f.twice == 0 {
		return heldWith("the shard ran on one node")
	}
	return failedWith("the first node said twice that it had stopped the shard, which then ran on two others")
}

func allocatedTwiceHere(ctx context.Context, l *lab) (outcome, error) {
	const nodes, shards = 3, 8
	f := &floor{nodes: make(map[int]int)}
	var stops [nodes]func() error
	for i := range stops {
		sess, err := l.open(ctx, l.cli, session.DefaultTTL)
		if err != nil {
			return outcome{}, err
		}
		stops[i] = f.run(ctx, sess, fmt.Sprint("node ", i), shards)
	}
	defer func() {
		for _, stop := range stops {
			_ = stop()
		}
	}()
	if err := f.await(ctx, shards); err != nil {
		return outcome{}, err
	}
	for i := range stops { // a rolling restart
		if err := stops[i](); err != nil {
			return outcome{}, err
		}
		sess, err := l.open(ctx, l.cli, session.DefaultTTL)
		if err != nil {
			return outcome{}, err
		}
		stops[i] = f.run(ctx, sess, fmt.Sprint("node ", i), shards)
		if err := f.await(ctx, shards); err != nil {
			return outcome{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.twice > 0 {
		return failedWith("a shard ran on two nodes, %d times", f.twice)
	}
	return heldWith("%d shards ran on %d nodes, which were restarted one after the other, and started %d times: none on "+
		"two", shards, nodes, f.started)
}

// run owns a node's shards until the function that it returns is called.
func (f *floor) run(ctx context.Context, sess *session.Session, node string, n int) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	all := shard.New(sess, "x", n).With(shard.Options{Member: node, OnError: func(int, error) {}})
	done := in(func() error {
		return all.Run(ctx, func(ctx context.Context, s *shard.Shard) error {
			f.start(s.Index())
			defer f.stop(s.Index())
			<-ctx.Done()
			return nil
		})
	})
	return sync.OnceValue(func() error {
		cancel()
		select {
		case <-done:
			return nil
		case <-time.After(patience):
			return fmt.Errorf("%s does not stop", node)
		}
	})
}

// await waits until all shards run.
func (f *floor) await(ctx context.Context, n int) error {
	for f.running() < n {
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
