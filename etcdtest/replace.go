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

// Replace puts a new member in the place of s: with another name and ID and no data, which joins the cluster and gets the
// data from the others. It stops s, as a crash does, if it runs, has the others remove it and add the new one, deletes its
// data, and returns when the new one has caught up and serves.
//
// s then stands for the new member. It serves at the address of the old one, as a new machine does behind an old name in
// the DNS: lists of endpoints, clients and links go on as they are, and find nobody there for the moment in between.
//
// The others have to be a quorum, so there are three members at least, and reach s ([Cluster.Partition]); otherwise there
// is an error, at the latest when ctx has ended. After an error s is stopped, and may be no member any more: try again, or
// close the cluster.
func (c *Cluster) Replace(ctx context.Context, s *Server) error {
	if !slices.Contains(c.members, s) || len(c.members) < 3 {
		return errors.New("etcdtest: replace: not one of three members or more")
	}
	var others []string
	for _, other := range c.members {
		if other != s {
			others = append(others, other.endpoints...)
		}
	}
	cli, err := newClient(others)
	if err != nil {
		return err
	}
	defer cli.Close()

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("etcdtest: replace of a closed server")
	}
	s.stop()
	if err = remove(ctx, cli, s.spec.peerURL()); err == nil {
		err = c.join(ctx, cli, s)
	}
	if err != nil {
		s.stop()
		return fmt.Errorf("etcdtest: replace %s: %w", s.spec.Name, err)
	}
	return nil
}

// join starts s as a new member. It is called with the mutex of s held.
func (c *Cluster) join(ctx context.Context, cli *clientv3.Client, s *Server) error {
	s.replaced++
	s.spec.Name = fmt.Sprintf("%s-%d", s.spec.Caller, s.replaced)
	s.spec.Join = true
	peers := []string{s.spec.Name + "=" + s.spec.peerURL()}
	for _, other := range c.members {
		if other != s {
			peers = append(peers, other.spec.Caller+"="+other.spec.peerURL())
		}
	}
	s.spec.Cluster = strings.Join(peers, ",")

	err := persist(ctx, func(ctx context.Context) error {
		_, err := cli.MemberAdd(ctx, []string{s.spec.peerURL()})
		if errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil // an attempt that was not answered has done it
		}
		return err
	})
	if err != nil {
		return err
	}
	// The new one asks any of the others who the members are, and that one may not know yet.
	err = persist(ctx, func(context.Context) error {
		if err := os.RemoveAll(s.spec.Dir); err != nil {
			return err
		}
		return s.start()
	})
	if err != nil {
		return err
	}
	return s.member.waitReady(ctx)
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

// persist calls f until it succeeds: while a leader is elected, say, it fails, and a change of members that raft has
// refused is not answered at all. When ctx ends before, it returns the cause, with f's last error.
func persist(ctx context.Context, f func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond) // no event says that it is worth trying again
	defer tick.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
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
