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

// A Cluster is several etcd members that replicate one store. Its Client, Link and helpers use all members; those of a
// Cluster.Member use only that one.
type Cluster struct {
	access
	opts    Options
	dir     string // has a directory for each member
	tempDir string // dir, if Close must remove it
	wires   *wires

	memberMu sync.Mutex // protects members, created, left
	members  []*Server
	created  int     // members ever created, for their names
	left     []*port // of members that were removed: no later member gets them, or clients could still know it by them
}

// StartCluster starts an etcd of n members, and returns when all of them serve. It closes the Cluster when the test
// ends. It takes at most one Options.
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

// NewCluster is StartCluster without a testing.TB. The caller must Close the Cluster.
func NewCluster(n int, o Options) (_ *Cluster, err error) {
	if n < 1 {
		return nil, fmt.Errorf("etcdtest: a cluster needs at least one member, got %d", n)
	}
	c := &Cluster{wires: newWires(), opts: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	c.dir = c.opts.Dir
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "etcdtest-"); err != nil {
			return nil, err
		}
		c.tempDir = c.dir
	}

	var peers []string
	for range n {
		s, err := c.newMember()
		if err != nil {
			return nil, err
		}
		peers = append(peers, s.spec.Name+"="+s.spec.peerURL())
		c.include(s)
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
	return c, nil
}

// newMember reserves addresses for a new member. It does not start it.
func (c *Cluster) newMember() (s *Server, err error) {
	c.memberMu.Lock()
	name := fmt.Sprintf("m%d", c.created)
	c.created++
	c.memberMu.Unlock()
	s = &Server{opts: c.opts, spec: spec{Name: name, Caller: name, Fsync: c.opts.Fsync, Slow: c.opts.DefaultTicks}}
	if s.client, err = reservePort(); err != nil {
		return nil, err
	}
	if s.peers, err = newProxy(c.wires.to(name), ""); err != nil {
		return nil, errors.Join(err, s.client.Close())
	}
	s.spec.Dir = filepath.Join(c.dir, name)
	s.spec.Client, s.spec.Peers = s.client.addr, s.peers.addr()
	s.endpoints = []string{s.client.addr}
	return s, nil
}

// include adds s to the members and their endpoints.
func (c *Cluster) include(s *Server) {
	c.memberMu.Lock()
	defer c.memberMu.Unlock()
	c.members = append(c.members, s)
	c.setEndpoints(clientAddresses(c.members))
}

// exclude removes s from the members and their endpoints.
func (c *Cluster) exclude(s *Server) {
	c.memberMu.Lock()
	defer c.memberMu.Unlock()
	c.members = slices.DeleteFunc(slices.Clone(c.members), func(m *Server) bool { return m == s })
	c.left = append(c.left, s.client)
	c.setEndpoints(clientAddresses(c.members))
}

func clientAddresses(members []*Server) (addrs []string) {
	for _, s := range members {
		addrs = append(addrs, s.client.addr)
	}
	return addrs
}

// Members returns the members, running or not, the oldest first.
func (c *Cluster) Members() []*Server {
	c.memberMu.Lock()
	defer c.memberMu.Unlock()
	return slices.Clone(c.members)
}

// Member returns Members()[i].
func (c *Cluster) Member(i int) *Server { return c.Members()[i] }

// Leader waits until a running member leads and more than half of all members follow it. It returns that member, or the
// cause of ctx if that ends first.
func (c *Cluster) Leader(ctx context.Context) (*Server, error) {
	tick := time.NewTicker(10 * time.Millisecond) // etcd has no event for this
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
	members := c.Members()
	for _, s := range members {
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
		if followers[id] > len(members)/2 {
			return s
		}
	}
	return nil
}

// Close closes all members; see [Server.Close].
func (c *Cluster) Close() error {
	members := c.Members()
	errs := make([]error, len(members)+1)
	var wg sync.WaitGroup
	for i, s := range members { // in parallel, since each waits for its connections
		wg.Go(func() { errs[i] = s.Close() })
	}
	wg.Wait()
	errs[len(members)] = c.access.close()
	for _, p := range c.left {
		errs = append(errs, p.Close())
	}
	if c.tempDir != "" {
		errs = append(errs, os.RemoveAll(c.tempDir))
	}
	return errors.Join(errs...)
}
