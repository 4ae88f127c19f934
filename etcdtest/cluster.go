package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
)

// A Cluster is several etcd members that replicate one store. Its Client, Link and helpers use all
// members; those of a [Cluster.Member] only that one.
type Cluster struct {
	access
	tempDir string
	wires   *wires
	members []*Server
}

// StartCluster starts an etcd of n members and returns when all of them serve. It fails the test if that does not work,
// and closes the Cluster when the test ends. At most one Options is taken.
func StartCluster(t testing.TB, n int, opts ...Options) *Cluster {
	t.Helper()
	c, err := NewCluster(n, oneOf(opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// NewCluster is StartCluster for programs and examples that have no [testing.TB]: the caller must Close the Cluster.
// Nil options are the defaults. After an error nothing is left running.
func NewCluster(n int, opts *Options) (_ *Cluster, err error) {
	if n < 1 {
		return nil, fmt.Errorf("etcdtest: a cluster of %d members", n)
	}
	c := &Cluster{wires: newWires()}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	var o Options
	if opts != nil {
		o = *opts
	}
	dir := o.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "etcdtest-"); err != nil {
			return nil, err
		}
		c.tempDir = dir
	}

	var peers []string
	for i := range n {
		name := fmt.Sprintf("m%d", i)
		s := &Server{opts: o, spec: spec{Name: name, Caller: name, Fsync: o.Fsync, Slow: o.DefaultTicks}}
		if s.client, err = reservePort(); err != nil {
			return nil, err
		}
		if s.peers, err = newProxy(c.wires.to(name), ""); err != nil {
			return nil, errors.Join(err, s.client.Close())
		}
		s.spec.Dir = filepath.Join(dir, s.spec.Name)
		s.spec.Client, s.spec.Peers = s.client.addr, s.peers.addr()
		s.endpoints = []string{s.client.addr}
		peers = append(peers, s.spec.Name+"="+s.spec.peerURL())
		c.members = append(c.members, s)
		c.endpoints = append(c.endpoints, s.client.addr)
	}
	for _, s := range c.members {
		s.spec.Cluster = strings.Join(peers, ",")
		if err := s.start(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), startTimeout, errNotReady)
	defer cancel()
	for _, s := range c.members {
		if err := s.member.waitReady(ctx); err != nil {
			return nil, fmt.Errorf("etcdtest: start %s: %w", s.spec.Name, err)
		}
	}
	if n == 1 { // New hands out the member alone
		c.members[0].tempDir = c.tempDir
	}
	return c, nil
}

// Members returns the members, running or not, in the order of their numbers.
func (c *Cluster) Members() []*Server { return slices.Clone(c.members) }

// Member returns member i, from 0.
func (c *Cluster) Member(i int) *Server { return c.members[i] }

// Leader waits until one of the members that run, and are not paused, leads and more than half of all members follow it,
// and returns it. When ctx ends before, it returns the cause.
func (c *Cluster) Leader(ctx context.Context) (*Server, error) {
	tick := time.NewTicker(10 * time.Millisecond) // no event says that a quorum follows
	defer tick.Stop()
	for {
		if leader := c.leader(); leader != nil {
			return leader, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("etcdtest: no leader: %w", context.Cause(ctx))
		}
	}
}

func (c *Cluster) leader() *Server {
	candidates, followers := make(map[types.ID]*Server), make(map[types.ID]int)
	for _, s := range c.members {
		id, leader := s.raft()
		if leader == 0 {
			continue
		}
		if leader == id {
			candidates[id] = s
		}
		followers[leader]++
	}
	for id, s := range candidates {
		if followers[id] > len(c.members)/2 {
			return s
		}
	}
	return nil
}

// Close closes all members; see [Server.Close].
func (c *Cluster) Close() error {
	errs := make([]error, len(c.members)+1)
	var wg sync.WaitGroup
	for i, s := range c.members { // at once: each waits for its own connections
		wg.Go(func() { errs[i] = s.Close() })
	}
	wg.Wait()
	errs[len(c.members)] = c.access.close()
	if c.tempDir != "" {
		errs = append(errs, os.RemoveAll(c.tempDir))
	}
	return errors.Join(errs...)
}
