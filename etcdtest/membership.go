package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Add adds a member at its own address, and returns it when it has the data and serves. Endpoints, and clients
// and links made of them from then on, include it.
//
// The present members must have a quorum; otherwise Add fails when ctx ends. After an error the cluster may have a
// member that does not run; close it.
func (c *Cluster) Add(ctx context.Context) (*Server, error) {
	s, err := c.newMember()
	if err != nil {
		return nil, err
	}
	cli, err := newClient(c.Endpoints())
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	defer cli.Close()
	s.mu.Lock()
	err = c.join(ctx, cli, s)
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("etcdtest: add %s: %w", s.spec.Name, errors.Join(err, s.Close()))
	}
	c.include(s)
	return s, nil
}

// Remove removes s from the cluster and closes it. No later member gets its address. The others must have a quorum of
// what is left; otherwise Remove fails when ctx ends, and s stays a member.
func (c *Cluster) Remove(ctx context.Context, s *Server) error {
	others, err := c.others(s, 1)
	if err != nil {
		return fmt.Errorf("etcdtest: remove: %w", err)
	}
	cli, err := newClient(clientAddresses(others))
	if err != nil {
		return err
	}
	defer cli.Close()
	if err := remove(ctx, cli, s.spec.peerURL()); err != nil {
		return fmt.Errorf("etcdtest: remove %s: %w", s.spec.Name, err)
	}
	c.exclude(s)
	return s.close(false)
}

// Replace stops s if it runs, removes it, adds a new member without data at the same address, and returns when that
// serves. From then on s is the new member. Clients and links need no change.
//
// The others must be a quorum of at least three members, and must reach s; otherwise Replace fails, at the latest when
// ctx ends. After an error s is stopped and may be no member: try again, or close the cluster.
func (c *Cluster) Replace(ctx context.Context, s *Server) error {
	others, err := c.others(s, 2)
	if err != nil {
		return fmt.Errorf("etcdtest: replace: %w", err)
	}
	cli, err := newClient(clientAddresses(others))
	if err != nil {
		return err
	}
	defer cli.Close()

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("etcdtest: replace: the member is closed")
	}
	s.stop()
	if err = remove(ctx, cli, s.spec.peerURL()); err == nil {
		s.replaced++
		s.spec.Name = fmt.Sprintf("%s-%d", s.spec.Caller, s.replaced)
		err = c.join(ctx, cli, s)
	}
	if err != nil {
		s.stop()
		return fmt.Errorf("etcdtest: replace %s: %w", s.spec.Name, err)
	}
	return nil
}

// others returns the members other than s, of which there must be at least min.
func (c *Cluster) others(s *Server, min int) ([]*Server, error) {
	members := c.Members()
	if !slices.Contains(members, s) {
		return nil, errors.New("not a member of this cluster")
	}
	others := slices.DeleteFunc(members, func(m *Server) bool { return m == s })
	if len(others) < min {
		return nil, fmt.Errorf("the cluster has %d members, too few", len(others)+1)
	}
	return others, nil
}

// join adds s, which has no data, to the cluster, starts it, and waits until it votes. The caller holds s.mu.
func (c *Cluster) join(ctx context.Context, cli *clientv3.Client, s *Server) error {
	s.spec.Join = true
	peers := []string{s.spec.Name + "=" + s.spec.peerURL()}
	for _, m := range c.Members() {
		if m != s {
			peers = append(peers, m.spec.Caller+"="+m.spec.peerURL())
		}
	}
	s.spec.Cluster = strings.Join(peers, ",")

	// As a learner it does not count for the quorum before it has the data.
	err := persist(ctx, func(ctx context.Context) error {
		_, err := cli.MemberAddAsLearner(ctx, []string{s.spec.peerURL()})
		if errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil // an earlier attempt succeeded without a reply
		}
		return err
	})
	if err != nil {
		return err
	}
	// The new member asks any of the others for the list of members, and that one may not have the newest yet.
	err = persist(ctx, func(context.Context) error {
		if err := os.RemoveAll(s.spec.Dir); err != nil {
			return err
		}
		return s.start()
	})
	if err != nil {
		return err
	}
	if err := s.member.waitReady(ctx); err != nil {
		return err
	}
	if err := promote(ctx, cli, s.spec.peerURL()); err != nil {
		return err
	}
	return persist(ctx, func(ctx context.Context) error { // until the member itself knows of it, it refuses writes
		status, err := cli.Status(ctx, s.Endpoints()[0])
		if err == nil && status.IsLearner {
			err = rpctypes.ErrGRPCNotSupportedForLearner
		}
		return err
	})
}

// promote makes the learner with a peer URL a voting member, once it has the data.
func promote(ctx context.Context, cli *clientv3.Client, peerURL string) error {
	return persist(ctx, func(ctx context.Context) error {
		list, err := cli.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			if m.IsLearner && slices.Contains(m.PeerURLs, peerURL) {
				_, err = cli.MemberPromote(ctx, m.ID)
			}
		}
		return err
	})
}

// remove removes the member with a peer URL, if there is one.
func remove(ctx context.Context, cli *clientv3.Client, peerURL string) error {
	return persist(ctx, func(ctx context.Context) error {
		list, err := cli.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			if slices.Contains(m.PeerURLs, peerURL) {
				_, err = cli.MemberRemove(ctx, m.ID)
			}
		}
		return err
	})
}

// persist repeats f until it succeeds: it fails during an election, for instance, and etcd does not reply at all to a
// change of members that raft has refused. So each attempt has a timeout, which grows for the sake of busy machines.
// When ctx ends first, persist returns the cause and f's last error.
func persist(ctx context.Context, f func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond) // etcd has no event that says when to try again
	defer tick.Stop()
	for timeout := 250 * time.Millisecond; ; timeout = min(2*timeout, 5*time.Second) {
		attempt, cancel := context.WithTimeout(ctx, timeout)
		err := f(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
