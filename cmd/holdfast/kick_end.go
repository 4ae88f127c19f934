package main

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/internal/layout"
)

// ending is how a holder's entry has gone.
type ending int

const (
	unknownEnd ending = iota // the history is compacted, or may not be read
	letGo                    // by its holder, or its session
	leaseEnded               // with the lease that it stood on, or by hand; perhaps its holder does not know
)

const takenAway = `%s is free, but %s has not let go of it. If its process is
stopped or cut off from etcd, it believes that it holds until it continues, or for up
to its TTL: stop the process. Only a store that compares fencing tokens refuses what
it writes.`

// ending returns how the entry of a holder has gone that stood at revision seen, or why that is not known.
//
// A removal has moved the entry to a lease of its own: if that still lives, the entry was released. Otherwise its claim
// tells: that goes with a release, or before it at a Close, and outlives a loss.
func (a *app) ending(
	ctx context.Context, cli *clientv3.Client, q layout.Keyspace, holder admin.Entry, seen int64,
) (ending, error) {
	if holder.Released() {
		return letGo, nil
	}
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	lease := holder.Lease
	end := deletion(ctx, cli, holder.Key, seen, &lease)
	switch {
	case end == 0:
		return unknownEnd, errors.New("etcd's history does not tell")
	case lease != holder.Lease:
		left, err := cli.TimeToLive(ctx, lease)
		if err != nil {
			return unknownEnd, fmt.Errorf("look whether lease %x lives: %w", int64(lease), err)
		}
		return endingIf(left.TTL >= 0), nil
	default:
		key := q.ClaimKey(holder.Key)
		resp, err := cli.Get(ctx, key, clientv3.WithRev(end), clientv3.WithCountOnly())
		if err != nil {
			return unknownEnd, fmt.Errorf("read %s: %w", clean(key, 0), err)
		}
		return endingIf(resp.Count == 0), nil
	}
}

func endingIf(released bool) ending {
	if released {
		return letGo
	}
	return leaseEnded
}

// deletion returns the revision at which a key was deleted that stood at revision seen, and notes the lease that it
// stood on last. 0: that is not known.
func deletion(ctx context.Context, cli *clientv3.Client, key string, seen int64, lease *clientv3.LeaseID) int64 {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx)) // ends the watch
	defer cancel()
	for past := range cli.Watch(ctx, key, clientv3.WithRev(seen+1)) {
		for _, ev := range past.Events {
			if ev.Type == mvccpb.DELETE {
				return ev.Kv.ModRevision
			}
			*lease = clientv3.LeaseID(ev.Kv.Lease)
		}
	}
	return 0
}
